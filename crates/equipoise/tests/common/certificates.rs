//! An authority, and the certificates that it issues.

use equipoise_testkit::Folder;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use super::text;

/// An authority, and a folder with its certificate in `ca.pem`. Tests add what it issues.
pub struct Certificates {
    pub authority: CertifiedIssuer<'static, KeyPair>,
    pub folder: Folder,
}

impl Certificates {
    pub fn new(test: &str) -> Certificates {
        let mut params = CertificateParams::default();
        // curl takes a certificate with the subject of its issuer for self-signed.
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let folder = Folder::new(test);
        folder.write("ca.pem", &authority.pem());
        Certificates { authority, folder }
    }

    pub fn path(&self, file: &str) -> String {
        text(&self.folder.path(file)).to_string()
    }
}
