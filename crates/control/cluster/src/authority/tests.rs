use super::*;

fn name(text: &str) -> Name {
    text.parse().expect("a test's name")
}

fn now() -> SystemTime {
    // Certificates have whole seconds.
    std::time::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn request() -> (KeyPair, SigningRequest) {
    let key = KeyPair::generate().unwrap();
    let der = CertificateParams::default().serialize_request(&key).unwrap();
    let request = SigningRequest::from_der(der.der()).unwrap();
    (key, request)
}

#[test]
fn a_node_certificate_ignores_names_and_ca_flag_of_the_request() {
    let authority = Authority::new(&name("prod"), now()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut wish = CertificateParams::new(["controller.example".to_string()]).unwrap();
    wish.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    wish.distinguished_name.push(DnType::CommonName, "somebody else");
    let der = wish.serialize_request(&key).unwrap();
    let request = SigningRequest::from_der(der.der()).unwrap();
    let day = Duration::from_secs(86_400);
    let signed = authority.sign_node(&request, &name("edge-1"), now(), day).unwrap();
    let certified = Certified::of(&signed).unwrap();
    assert_eq!(certified.identity.to_string(), "equipoise://prod/node/edge-1");
    assert_eq!(certified.key, request.key());
    assert_eq!(certified.valid_until, now() + day);
    assert!(certified.holds_at(now()) && !certified.holds_at(now() + day + day));
    let (_, parsed) = x509_parser::parse_x509_certificate(&signed).unwrap();
    assert!(!parsed.is_ca(), "the request asked for an authority");
    let names = parsed.subject_alternative_name().unwrap().unwrap();
    assert_eq!(names.value.general_names.len(), 1, "{names:?}");
}

#[test]
fn a_certificate_expires_no_later_than_its_authority() {
    let authority = Authority::new(&name("prod"), now()).unwrap();
    let late = now() + AUTHORITY_LIFETIME - Duration::from_secs(60);
    let (_, request) = request();
    let lifetime = Duration::from_secs(3600);
    let signed = authority.sign_node(&request, &name("a"), late, lifetime).unwrap();
    assert_eq!(Certified::of(&signed).unwrap().valid_until, now() + AUTHORITY_LIFETIME);
}

#[test]
fn a_renewed_authority_has_the_same_fingerprint() {
    let authority = Authority::new(&name("prod"), now()).unwrap();
    let before = (authority.fingerprint(), authority.certificate().clone());
    let later = now() + Duration::from_secs(86_400 * 365);
    let renewed = authority.renewed(later).unwrap();
    assert_eq!(renewed.fingerprint(), before.0);
    assert_ne!(*renewed.certificate(), before.1);
    assert_eq!(renewed.certified().valid_until, later + AUTHORITY_LIFETIME);
}

#[test]
fn an_authority_loads_only_from_its_own_certificate_and_key() {
    let one = Authority::new(&name("prod"), now()).unwrap();
    let other = Authority::new(&name("prod"), now()).unwrap();
    let back = Authority::from_pem(&one.certificate_pem(), &one.key_pem()).unwrap();
    assert_eq!(back.certified(), one.certified());
    let mixed = Authority::from_pem(&one.certificate_pem(), &other.key_pem());
    assert!(matches!(mixed, Err(AuthorityError::Mismatch)), "{mixed:?}");
    let swapped = Authority::from_pem(&one.key_pem(), &one.certificate_pem());
    assert!(matches!(swapped, Err(AuthorityError::Pem { .. })), "{swapped:?}");
    let hosts = ["127.0.0.1".to_string(), "c1.example".to_string()];
    let day = Duration::from_secs(86_400);
    let issued = one.issue_controller(&name("c1"), &hosts, now(), day).unwrap();
    let wrong = Authority::from_pem(&certificate_pem(&issued.chain[0]), &one.key_pem());
    assert!(matches!(wrong, Err(AuthorityError::Role(Role::Controller))), "{wrong:?}");
}

#[test]
fn a_request_that_its_key_did_not_sign_is_refused() {
    let (key, _) = request();
    let mut der = CertificateParams::default().serialize_request(&key).unwrap().der().to_vec();
    let last = der.len() - 1;
    der[last] ^= 1;
    assert!(matches!(SigningRequest::from_der(&der), Err(AuthorityError::Request)));
    assert!(matches!(SigningRequest::from_der(b"garbage"), Err(AuthorityError::Request)));
}

#[test]
fn debug_output_omits_private_keys() {
    let authority = Authority::new(&name("prod"), now()).unwrap();
    let issued = authority.issue_operator(&name("root"), now()).unwrap();
    let shown = format!("{authority:?} {issued:?}");
    let key = authority.key_pem();
    let secret = key.lines().nth(1).unwrap();
    assert!(!shown.contains(&secret[..20]) && shown.contains("prod"), "{shown}");
}

#[test]
fn a_derived_secret_depends_on_the_authority_key_and_the_purpose() {
    let authority = Authority::new(&name("prod"), now()).unwrap();
    let secret = authority.secret("certificates");
    assert_ne!(secret, authority.secret("other"));
    let again = Authority::from_pem(&authority.certificate_pem(), &authority.key_pem()).unwrap();
    assert_eq!(again.renewed(now()).unwrap().secret("certificates"), secret);
    let another = Authority::new(&name("prod"), now()).unwrap();
    assert_ne!(another.secret("certificates"), secret);
}
