//! The programs that the comparison needs: where they are and which version they say they are.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::options::Options;

/// A proxy under comparison, or equipoise with an option beside itself without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proxy {
    Haproxy,
    Nginx,
    /// With the options that an installation has.
    Equipoise,
    /// equipoise with `concurrency = "none"`.
    Unlimited,
    /// equipoise with a stated limit that no load here reaches.
    Stated,
    /// equipoise with `concurrency = "learnt"`.
    Learnt,
    /// equipoise with features that no request of the load uses.
    Features,
}

impl Proxy {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Proxy::Haproxy => "haproxy",
            Proxy::Nginx => "nginx",
            Proxy::Equipoise => "equipoise",
            Proxy::Unlimited => "equipoise-none",
            Proxy::Stated => "equipoise-1000",
            Proxy::Learnt => "equipoise-learnt",
            Proxy::Features => "equipoise-features",
        }
    }

    pub(crate) fn is_equipoise(self) -> bool {
        !matches!(self, Proxy::Haproxy | Proxy::Nginx)
    }

    /// The `concurrency` of equipoise's pool: a line of its configuration.
    pub(crate) fn concurrency(self) -> &'static str {
        match self {
            Proxy::Unlimited => "concurrency = \"none\"",
            Proxy::Stated => "concurrency = 1000",
            Proxy::Learnt => "concurrency = \"learnt\"",
            Proxy::Haproxy | Proxy::Nginx | Proxy::Equipoise | Proxy::Features => "",
        }
    }

    /// Options of equipoise's front door: lines of its configuration.
    pub(crate) fn features(self) -> String {
        if self != Proxy::Features {
            return String::new();
        }
        let route = |number: usize| {
            format!(
                "[[session.route]]\nhost = \"site-{number}.example\"\npath-prefix = \"/app\"\npool = \"web\"\n\
                 retry-on = [\"connect\", \"503\"]\nrewrite = {{ prefix = \"/\" }}\n\
                 request-headers = {{ set = \"X-Site: {number}\" }}\nresponse-headers = {{ remove = \"X-Site\" }}\n\
                 mirror = {{ pool = \"web\", share = 0.1 }}\n\
                 [[session.route.limit]]\nrate = \"10/s\"\n"
            )
        };
        let routes: String = (0..ROUTES).map(route).collect();
        format!("deny = [\"203.0.113.0/24\", \"2001:db8::/32\"]\n{routes}")
    }
}

/// Routes to sites that no request names.
const ROUTES: usize = 20;

/// Where the programs are.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    pub(crate) haproxy: PathBuf,
    pub(crate) nginx: PathBuf,
    pub(crate) wrk: PathBuf,
    pub(crate) h2load: PathBuf,
    pub(crate) equipoise: Option<PathBuf>,
    /// nginx's stream module, for the TCP rows.
    pub(crate) nginx_stream: Option<PathBuf>,
}

impl Peers {
    /// # Errors
    /// If one is missing, with what to install.
    pub(crate) fn find(options: &Options) -> Result<Peers> {
        let mut missing = Vec::new();
        let mut find = |name: &'static str| {
            let path = on_path(name);
            if path.is_none() {
                missing.push(name);
            }
            path.unwrap_or_default()
        };
        let (haproxy, nginx, wrk) = (find("haproxy"), find("nginx"), find("wrk"));
        let h2load = find("h2load");
        find("openssl");
        if !missing.is_empty() {
            bail!(
                "not found: {}. On Debian: sudo apt-get install --no-install-recommends haproxy nginx-light \
                 wrk nghttp2-client openssl libnginx-mod-stream (their services need not run)",
                missing.join(", ")
            );
        }
        let stream = options.nginx_modules.join("ngx_stream_module.so");
        let equipoise =
            if options.without_equipoise { None } else { Some(find_equipoise(options)?) };
        let nginx_stream = stream.is_file().then_some(stream);
        Ok(Peers { haproxy, nginx, wrk, h2load, equipoise, nginx_stream })
    }

    /// Name and version, as each program prints it.
    pub(crate) fn versions(&self) -> Vec<(String, String)> {
        let mut versions = vec![
            ("haproxy".to_owned(), first_line(&self.haproxy, "-v")),
            ("nginx".to_owned(), first_line(&self.nginx, "-v")),
            ("wrk".to_owned(), first_line(&self.wrk, "-v")),
            ("h2load".to_owned(), first_line(&self.h2load, "--version")),
            ("openssl".to_owned(), first_line(Path::new("openssl"), "version")),
        ];
        if let Some(equipoise) = &self.equipoise {
            versions.push(("equipoise".to_owned(), first_line(equipoise, "--version")));
        }
        versions
    }
}

/// Debian keeps daemons in /usr/sbin, which is not in an ordinary user's PATH.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

fn find_equipoise(options: &Options) -> Result<PathBuf> {
    let path = match &options.equipoise {
        Some(path) => path.clone(),
        None => {
            // lab/peers/session-http is three folders below the workspace.
            let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
            let workspace = crate_folder.ancestors().nth(3).unwrap_or(crate_folder);
            let target = env::var_os("CARGO_TARGET_DIR")
                .map_or_else(|| workspace.join("target"), PathBuf::from);
            target.join("dist/equipoise")
        }
    };
    path.canonicalize().with_context(|| {
        format!(
            "no equipoise binary at {}: build it with `cargo build --profile dist -p equipoise`, name it with \
             --equipoise PATH, or leave it out with --without-equipoise",
            path.display()
        )
    })
}

/// The first line that a program prints on either stream; wrk's `-v` ends with status 1.
fn first_line(program: &Path, argument: &str) -> String {
    let Ok(output) = Command::new(program).arg(argument).output() else {
        return "unknown".to_owned();
    };
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).lines().next().unwrap_or("unknown").trim().to_owned()
}
