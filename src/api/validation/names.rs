//! The forms of names. Each rule returns its complaints, which are empty if the name is good.

/// Largest length of a DNS label, in bytes.
const LABEL_MAX: usize = 63;
/// Largest length of a DNS subdomain, in bytes.
const SUBDOMAIN_MAX: usize = 253;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name', or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const HEADER: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const ENV: &str = "a valid environment variable name must consist only of printable ASCII characters other than '='";

fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

/// Returns the texts of the rules that are broken.
fn complaints<const N: usize>(rules: [(bool, String); N]) -> Vec<String> {
    rules
        .into_iter()
        .filter(|(broken, _)| *broken)
        .map(|(_, text)| text)
        .collect()
}

fn label_form(text: &str) -> bool {
    let inner = text
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    inner && !text.is_empty() && !text.starts_with('-') && !text.ends_with('-')
}

fn subdomain_form(text: &str) -> bool {
    text.split('.').all(label_form)
}

/// True if the text has the form `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`.
fn name_form(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

/// Returns why `text` is not a DNS label (kubelet-probes 1.5); empty if it is one. Names of containers, volumes and
/// namespaces must be DNS labels.
pub fn is_dns_label(text: &str) -> Vec<String> {
    let dotted = subdomain_form(text);
    let form = if dotted {
        "must not contain dots"
    } else {
        LABEL
    };
    complaints([
        (text.len() > LABEL_MAX, too_long(LABEL_MAX)),
        (!label_form(text), form.into()),
    ])
}

/// Returns why `text` is not a DNS label that begins with a letter; empty if it is one. Names of services must have
/// this form.
pub fn is_dns_1035_label(text: &str) -> Vec<String> {
    let good = label_form(text) && text.starts_with(|c: char| c.is_ascii_lowercase());
    complaints([
        (text.len() > LABEL_MAX, too_long(LABEL_MAX)),
        (!good, LABEL_1035.into()),
    ])
}

/// Returns why `text` is not a DNS subdomain (kubelet-probes 1.5); empty if it is one. Names of pods and nodes must
/// be DNS subdomains.
pub fn is_dns_subdomain(text: &str) -> Vec<String> {
    complaints([
        (text.len() > SUBDOMAIN_MAX, too_long(SUBDOMAIN_MAX)),
        (!subdomain_form(text), SUBDOMAIN.into()),
    ])
}

/// Returns why `name` is not a port name (kubelet-probes 1.4); empty if it is one.
pub fn is_valid_port_name(name: &str) -> Vec<String> {
    let charset = !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let letter = name.bytes().any(|b| b.is_ascii_lowercase());
    complaints([
        (name.len() > 15, too_long(15)),
        (
            !charset,
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into(),
        ),
        (!letter, "must contain at least one letter (a-z)".into()),
        (
            name.contains("--"),
            "must not contain consecutive hyphens".into(),
        ),
        (
            name.starts_with('-') || name.ends_with('-'),
            "must not begin or end with a hyphen".into(),
        ),
    ])
}

/// Returns why `port` is not a port number (kubelet-probes 1.4); empty if it is one.
pub fn is_valid_port_number(port: i64) -> Vec<String> {
    complaints([(
        !(1..=65535).contains(&port),
        "must be between 1 and 65535, inclusive".into(),
    )])
}

/// Returns why `name` is not the name of an HTTP header (kubelet-probes 1.3); empty if it is one.
pub fn is_valid_header_name(name: &str) -> Vec<String> {
    let good = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    complaints([(!good, HEADER.into())])
}

/// Returns why `key` is not a key of a ConfigMap or Secret; empty if it is one. The key may become the name of a
/// file.
pub fn is_config_map_key(key: &str) -> Vec<String> {
    let form = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let good = !key.is_empty() && key.bytes().all(form);
    complaints([
        (key.len() > SUBDOMAIN_MAX, too_long(SUBDOMAIN_MAX)),
        (!good, KEY.into()),
        (key == ".", "must not be '.'".into()),
        (key == "..", "must not be '..'".into()),
        (
            key.starts_with("..") && key != "..",
            "must not start with '..'".into(),
        ),
    ])
}

/// Returns why `name` is not the name of an environment variable (kubelet-probes 1.5); empty if it is one.
pub fn is_env_name(name: &str) -> Vec<String> {
    let good = !name.is_empty()
        && name
            .bytes()
            .all(|b| (b' '..=b'~').contains(&b) && b != b'=');
    complaints([(!good, ENV.into())])
}

/// Returns why `key` is not the key of a label, `[prefix/]name`; empty if it is one.
pub fn is_qualified_name(key: &str) -> Vec<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let mut texts = match prefix {
        Some("") => vec!["prefix part must be non-empty".to_owned()],
        Some(prefix) => is_dns_subdomain(prefix)
            .into_iter()
            .map(|text| format!("prefix part {text}"))
            .collect(),
        None => Vec::new(),
    };
    texts.extend(complaints([
        (name.is_empty(), "name part must be non-empty".into()),
        (
            name.len() > LABEL_MAX,
            format!("name part {}", too_long(LABEL_MAX)),
        ),
        (!name_form(name), QUALIFIED.into()),
    ]));
    texts
}

/// Returns why `value` is not the value of a label; empty if it is one.
pub fn is_valid_label_value(value: &str) -> Vec<String> {
    complaints([
        (value.len() > LABEL_MAX, too_long(LABEL_MAX)),
        (!value.is_empty() && !name_form(value), LABEL_VALUE.into()),
    ])
}
