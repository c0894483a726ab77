//! Fixtures of the whole run: the files, the upstream that serves them, and the start of a proxy in
//! front.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustls::ClientConfig;

use crate::child::{Child, Setting};
use crate::peers::{Peers, Proxy};
use crate::place::Placement;
use crate::quota::Quota;
use crate::rows::{self, Load, Object, Protocol, Row, Tls};
use crate::{http, process, slow, sys, tls};

const UPSTREAM: &str = include_str!("../configs/upstream.conf");
const HAPROXY_HTTP: &str = include_str!("../configs/haproxy-http.cfg");
const HAPROXY_TCP: &str = include_str!("../configs/haproxy-tcp.cfg");
const NGINX_HTTP: &str = include_str!("../configs/nginx-http.conf");
const NGINX_STREAM: &str = include_str!("../configs/nginx-stream.conf");
const EQUIPOISE: &str = include_str!("../configs/equipoise.toml");
const WRK_REPORT: &str = include_str!("../configs/report.lua");

/// The file with the message of a gRPC call.
const MESSAGE: &str = "message";
/// Client connections that a proxy is set up for beyond those of the load.
const SPARE_CONNECTIONS: u64 = 1000;
/// Longest that a server may take from its start to its first right answer.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A server that answers.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// All its processes.
    pub(crate) pids: Vec<u32>,
    /// How its clients speak TLS.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// Behind the process that it bounds, which has to end first.
    _quota: Option<Quota>,
}

impl Server {
    fn start(
        command: Command,
        setting: &Setting,
        log: &Path,
        address: SocketAddr,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Server> {
        let mut child = Child::start(command, setting, log)?;
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            sys::sleep(Duration::from_millis(20))?;
            child.check_alive()?;
            match http::fetch(address, tls.as_ref(), rows::KB_1.path, rows::KB_1.length) {
                Ok(()) => break,
                Err(_) if Instant::now() < deadline => {}
                Err(error) => {
                    let text = format!("it wrote:\n{}", child.output());
                    return Err(error.context(text).context("a server that does not answer"));
                }
            }
        }
        let pids = process::family(child.pid())?;
        Ok(Server { child, address, pids, tls, _quota: None })
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    pub(crate) fn check_alive(&mut self) -> Result<()> {
        self.child.check_alive()
    }
}

/// Everything that the measurements share.
pub(crate) struct Stage {
    pub(crate) peers: Peers,
    pub(crate) placement: Placement,
    pub(crate) upstream: Server,
    /// Where it speaks HTTP/2 alone.
    upstream_http2: SocketAddr,
    /// Client connections of the row idle-memory.
    pub(crate) idle_connections: u32,
    folder: Folder,
}

impl Stage {
    pub(crate) fn build(
        peers: Peers,
        placement: Placement,
        idle_connections: u32,
    ) -> Result<Stage> {
        let folder = Folder::create()?;
        let files = folder.path.join("files");
        fs::create_dir(&files)?;
        for Object { path, length } in rows::OBJECTS {
            let body: Vec<u8> = (0..length).map(|index| b'a' + (index % 26) as u8).collect();
            fs::write(files.join(path.trim_start_matches('/')), body)?;
        }
        fs::write(folder.path.join("report.lua"), WRK_REPORT)?;
        for key in [Tls::Ecdsa, Tls::Rsa] {
            tls::create(&folder.path, key)?;
        }
        let open_files = open_files_for(idle_connections);
        let address = free_address()?;
        let upstream_http2 = free_address()?;
        // Not compressed, and its length.
        let message = [&[0, 0, 0, 0, 27][..], &[b'a'; 27]].concat();
        fs::write(folder.path.join(MESSAGE), message)?;
        let slow = slow::serve(&vec![b'a'; rows::KB_1.length])?;
        let text = UPSTREAM
            .replace("@SLOW@", &slow.to_string())
            .replace("@DIR@", &folder.path.display().to_string())
            .replace("@NOFILE@", &open_files.to_string())
            .replace("@FILES@", &files.display().to_string())
            .replace("@LISTEN@", &address.to_string())
            .replace("@LISTEN_HTTP2@", &upstream_http2.to_string());
        let config = folder.path.join("upstream.conf");
        fs::write(&config, text)?;
        let setting = Setting { cpus: placement.upstream.clone(), open_files, quota: None };
        let command = nginx(&peers, &config, &folder.path);
        let log = folder.path.join("upstream.log");
        let upstream =
            Server::start(command, &setting, &log, address, None).context("the upstream nginx")?;
        Ok(Stage { peers, placement, upstream, upstream_http2, idle_connections, folder })
    }

    /// Why `proxy` cannot take part in `row`, if it cannot.
    pub(crate) fn absence(&self, proxy: Proxy, row: &Row) -> Option<String> {
        if proxy.is_equipoise() && self.peers.equipoise.is_none() {
            return Some(format!("{} is left out: --without-equipoise", proxy.name()));
        }
        if let Some(share) = row.quota
            && let Err(error) = Quota::create(share)
        {
            return Some(format!(
                "{} is left out: no control group (version 1): {error:#}",
                proxy.name()
            ));
        }
        if proxy == Proxy::Nginx
            && row.is_http2_upstream()
            && !matches!(row.load, Load::Calls { .. })
        {
            return Some("nginx is left out: it speaks HTTP/2 to upstreams for gRPC alone".into());
        }
        let needs_stream = proxy == Proxy::Nginx && row.protocol == Protocol::Tcp;
        (needs_stream && self.peers.nginx_stream.is_none()).then(|| {
            "nginx is left out: its stream module is not installed (Debian: libnginx-mod-stream)".to_owned()
        })
    }

    /// Starts `proxy` as `row` wants it, in front of the upstream.
    pub(crate) fn start(&self, proxy: Proxy, row: &Row) -> Result<Server> {
        let address = free_address()?;
        let folder = &self.folder.path;
        let clients = if row.load == Load::Idle { self.idle_connections } else { 1000 };
        let connections = u64::from(clients) + SPARE_CONNECTIONS;
        let open_files = open_files_for(clients);
        let (template, file) = match (proxy, row.protocol) {
            (Proxy::Haproxy, Protocol::Http) => (HAPROXY_HTTP, "haproxy.cfg"),
            (Proxy::Haproxy, Protocol::Tcp) => (HAPROXY_TCP, "haproxy.cfg"),
            (Proxy::Nginx, Protocol::Http) => (NGINX_HTTP, "nginx.conf"),
            (Proxy::Nginx, Protocol::Tcp) => (NGINX_STREAM, "nginx.conf"),
            (_, _) => (EQUIPOISE, "equipoise.toml"),
        };
        let module = self.peers.nginx_stream.clone().unwrap_or_default();
        let protocol = if row.protocol == Protocol::Http { "http" } else { "tcp" };
        let (upstream, session) = match (row.is_http2_upstream(), proxy) {
            (true, Proxy::Nginx) | (false, _) => (self.upstream.address, ""),
            (true, _) => (self.upstream_http2, "proto h2"),
        };
        let certificate = row.tls.map(|tls| folder.join(tls.file()).display().to_string());
        let text = template
            .replace(
                "@TLS@",
                &certificate.map_or_else(String::new, |file| tls_options(proxy, row, &file)),
            )
            .replace("@DIR@", &folder.display().to_string())
            .replace("@NOFILE@", &open_files.to_string())
            .replace("@MAXCONN@", &connections.to_string())
            // nginx counts the connections to the upstream with them.
            .replace("@WORKER_CONNECTIONS@", &(connections * 2).to_string())
            .replace("@LISTEN@", &address.to_string())
            .replace("@UPSTREAM@", &upstream.to_string())
            .replace("@UPSTREAM_HTTP2@", &self.upstream_http2.to_string())
            .replace("@SESSION@", session)
            .replace("@STREAM_MODULE@", &module.display().to_string())
            .replace("@API_LISTEN@", &free_address()?.to_string())
            .replace("@SHARING@", row.sharing)
            .replace("@CONCURRENCY@", proxy.concurrency())
            .replace("@FEATURES@", &proxy.features())
            .replace("@PROTOCOL@", protocol);
        let config = folder.join(file);
        fs::write(&config, text)?;
        let command = self.command(proxy, &config)?;
        let log = folder.join(format!("{}.log", proxy.name()));
        let quota = row.quota.map(Quota::create).transpose()?;
        let setting = Setting {
            cpus: self.placement.proxy.clone(),
            open_files,
            quota: quota.as_ref().map(Quota::members).transpose()?,
        };
        let tls = row.tls.map(|key| tls::client(folder, key, false)).transpose()?;
        let server = Server::start(command, &setting, &log, address, tls)
            .with_context(|| format!("{} in row {}", proxy.name(), row.name))?;
        // The load of calls checks their answers.
        if !matches!(row.load, Load::Calls { .. }) {
            http::fetch(address, server.tls.as_ref(), row.object.path, row.object.length)
                .with_context(|| format!("{} in row {}", proxy.name(), row.name))?;
        }
        Ok(Server { _quota: quota, ..server })
    }

    /// The folder of the certificates.
    pub(crate) fn certificates(&self) -> &Path {
        &self.folder.path
    }

    /// The file with the message of a gRPC call.
    pub(crate) fn message(&self) -> PathBuf {
        self.folder.path.join(MESSAGE)
    }

    /// wrk's command line up to the URL.
    pub(crate) fn wrk(&self) -> Command {
        let mut command = Command::new(&self.peers.wrk);
        command.arg("-s").arg(self.folder.path.join("report.lua"));
        command
    }

    /// The output of wrk or h2load.
    pub(crate) fn load_log(&self) -> PathBuf {
        self.folder.path.join("load.log")
    }

    fn command(&self, proxy: Proxy, config: &Path) -> Result<Command> {
        Ok(match proxy {
            Proxy::Haproxy => {
                let mut command = Command::new(&self.peers.haproxy);
                // -db: one process, in the foreground.
                command.arg("-db").arg("-f").arg(config);
                command
            }
            Proxy::Nginx => nginx(&self.peers, config, &self.folder.path),
            _ => {
                let Some(binary) = &self.peers.equipoise else { bail!("no equipoise binary") };
                let mut command = Command::new(binary);
                command.arg("run").arg(config);
                command
            }
        })
    }
}

/// Options of a proxy's listener for TLS, with the certificate and key in `file`.
fn tls_options(proxy: Proxy, row: &Row, file: &str) -> String {
    let http2 = row.is_http2();
    match proxy {
        Proxy::Haproxy => {
            format!("ssl crt {file} alpn {}", if http2 { "h2,http/1.1" } else { "http/1.1" })
        }
        Proxy::Nginx => format!(
            "ssl{};\n        ssl_certificate {file};\n        ssl_certificate_key {file};\n        \
             ssl_protocols TLSv1.2 TLSv1.3",
            if http2 { " http2" } else { "" }
        ),
        _ => format!("http2 = {http2}\ntls = {{ certificates = [{file:?}] }}"),
    }
}

fn nginx(peers: &Peers, config: &Path, folder: &Path) -> Command {
    let mut command = Command::new(&peers.nginx);
    // -e: what is logged before the configuration is read goes to stderr, not to /var/log.
    command.arg("-e").arg("stderr").arg("-p").arg(folder).arg("-c").arg(config);
    command
}

/// Descriptors of a proxy or of the load with so many clients: one each, and enough for the
/// sessions to the upstream, for pipes, files and listeners (idle clients share a few sessions).
pub(crate) fn open_files_for(clients: u32) -> u64 {
    u64::from(clients) + 4 * SPARE_CONNECTIONS
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// A folder in memory, gone when dropped.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn create() -> Result<Folder> {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = parent.join(format!("equipoise-session-http-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("creating {}", path.display()))?;
        let folder = Folder { path };
        // A root nginx serves files as another user.
        fs::set_permissions(&folder.path, fs::Permissions::from_mode(0o755))?;
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Leftovers of a failure are a few megabytes that the next boot clears.
        let _ = fs::remove_dir_all(&self.path);
    }
}
