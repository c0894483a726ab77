//! Pass-through by server name with the real binary: openssl ends the TLS, curl asks.

mod common;

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use common::{Folder, Process, stderr, stdout, text};
use equipoise_testkit::{eventually, free_port};
use rcgen::{CertificateParams, KeyPair};

/// `openssl s_server` with a self-signed certificate for a name; it ends with the test.
struct Server(Child);

impl Server {
    fn start(folder: &Folder, name: &str, listens: SocketAddr) -> Server {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_string()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate");
        let file = format!("{name}.pem");
        let both = format!("{}{}", certificate.pem(), key.serialize_pem());
        let path = folder.write(&file, &both);
        let child = Command::new("openssl")
            .args(["s_server", "-accept", &listens.to_string(), "-www"])
            .args(["-cert", text(&path), "-key", text(&path)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let server = Server(child.expect("openssl runs; `make test-setup` installs it"));
        assert!(eventually(|| TcpStream::connect(listens).is_ok()));
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn each_name_reaches_the_server_with_its_certificate() {
    let folder = Folder::new("tls-sni");
    let (front, one, two) = (free_port(), free_port(), free_port());
    let _one = Server::start(&folder, "a.example", one.address());
    let _two = Server::start(&folder, "x.b.example", two.address());
    let config = format!(
        "[api]\nsocket = \"{}\"\nlisten = \"off\"\n[instance]\nthreads = 1\n\
         [[session]]\nname = \"door\"\nlisten = \"{}\"\nprotocol = \"tcp\"\npool = \"one\"\n\
         sni = [{{ names = [\"*.b.example\"], pool = \"two\" }}]\n\
         [[pool]]\nname = \"one\"\nbackends = [\"{}\"]\n\
         [[pool]]\nname = \"two\"\nbackends = [\"{}\"]\n",
        text(&folder.path("api.sock")),
        front.address(),
        one.address(),
        two.address()
    );
    let file = folder.write("equipoise.toml", &config);
    let process = Process::start(&["run", text(&file)]);
    process.wait_for_text(" ready ");
    let port = front.address().port();
    for name in ["a.example", "x.b.example"] {
        for version in [&["--tlsv1.2", "--tls-max", "1.2"][..], &["--tlsv1.3"]] {
            let output = Command::new("curl")
                .args(["--silent", "--show-error", "--max-time", "60"])
                .args(version)
                .args(["--cacert", text(&folder.path(&format!("{name}.pem")))])
                .args(["--resolve", &format!("{name}:{port}:127.0.0.1")])
                .arg(format!("https://{name}:{port}/"))
                .output()
                .expect("curl runs; `make test-setup` installs it");
            assert!(output.status.success(), "{name}: {}", stderr(&output));
            assert!(stdout(&output).contains("s_server"), "{name}: {}", stdout(&output));
        }
    }
}
