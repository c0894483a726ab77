//! The directives that are translated, and those that need no counterpart.

use super::syntax::Directive;
use crate::report::Report;

const NOTHING: &[&str] = &[
    "user",
    "worker_processes",
    "worker_rlimit_nofile",
    "worker_cpu_affinity",
    "worker_priority",
    "events",
    "http",
    "stream",
    "server",
    "upstream",
    "location",
    "pid",
    "multi_accept",
    "use",
    "sendfile",
    "tcp_nopush",
    "tcp_nodelay",
    "types_hash_max_size",
    "types_hash_bucket_size",
    "server_tokens",
    "server_names_hash_bucket_size",
    "server_names_hash_max_size",
    "variables_hash_max_size",
    "variables_hash_bucket_size",
    "include",
    "default_type",
    "types",
    "load_module",
    "daemon",
    "master_process",
    "pcre_jit",
    "ssl_session_cache",
    "ssl_session_timeout",
    "ssl_session_tickets",
    "ssl_session_ticket_key",
    "ssl_prefer_server_ciphers",
    "ssl_dhparam",
    "ssl_ecdh_curve",
    "ssl_buffer_size",
    "ssl_early_data",
    "proxy_http_version",
    "proxy_buffering",
    "proxy_buffers",
    "proxy_buffer_size",
    "proxy_busy_buffers_size",
    "proxy_max_temp_file_size",
    "proxy_temp_path",
    "proxy_temp_file_write_size",
    "proxy_headers_hash_max_size",
    "proxy_headers_hash_bucket_size",
    "proxy_socket_keepalive",
    "proxy_ssl_session_reuse",
    "proxy_ssl_server_name",
    "proxy_pass_header",
    "client_body_buffer_size",
    "client_body_temp_path",
    "reset_timedout_connection",
    "keepalive_requests",
    "keepalive_disable",
    "zone",
    "map_hash_bucket_size",
    "map_hash_max_size",
    "limit_req_log_level",
    "limit_conn_log_level",
    "log_not_found",
    "log_subrequest",
    "open_file_cache",
    "open_file_cache_valid",
    "open_file_cache_min_uses",
    "open_file_cache_errors",
    "real_ip_recursive",
    "internal",
    "aio",
    "directio",
    "output_buffers",
    "postpone_output",
    "msie_padding",
    "merge_slashes",
    "server_name_in_redirect",
    "lingering_close",
    "lingering_time",
    "lingering_timeout",
    "etag",
    "if_modified_since",
    "max_ranges",
    "limit_req_zone",
    "limit_conn_zone",
    "ssl_trusted_certificate",
    "http2_recv_timeout",
    "preread_timeout",
    "preread_buffer_size",
    "grpc_buffer_size",
    "proxy_ignore_client_abort",
    "env",
    "lock_file",
    "thread_pool",
    "debug_connection",
    "accept_mutex",
    "ssl_engine",
    "resolver_timeout",
];

const TRANSLATED: &[&str] = &[
    "absolute_redirect",
    "port_in_redirect",
    "listen",
    "server_name",
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_protocols",
    "ssl_client_certificate",
    "ssl_verify_client",
    "ssl_preread",
    "proxy_pass",
    "grpc_pass",
    "proxy_set_header",
    "proxy_hide_header",
    "add_header",
    "return",
    "rewrite",
    "proxy_read_timeout",
    "grpc_read_timeout",
    "proxy_connect_timeout",
    "proxy_timeout",
    "proxy_responses",
    "proxy_protocol",
    "proxy_next_upstream",
    "proxy_next_upstream_tries",
    "client_max_body_size",
    "client_header_timeout",
    "keepalive_timeout",
    "keepalive",
    "least_conn",
    "ip_hash",
    "hash",
    "random",
    "least_time",
    "limit_req",
    "limit_conn",
    "limit_rate",
    "allow",
    "deny",
    "set_real_ip_from",
    "real_ip_header",
    "mirror",
    "http2",
    "proxy_ssl_verify",
    "proxy_ssl_trusted_certificate",
    "proxy_ssl_name",
    "proxy_ssl_certificate",
    "proxy_ssl_certificate_key",
    "underscores_in_headers",
    "access_log",
    "split_clients",
    "map",
    "if",
    "sticky",
    "proxy_download_rate",
    "resolver",
    "proxy_ssl",
    "auth_basic",
    "auth_request",
    "auth_jwt",
    "secure_link",
    "access_by_lua_block",
    "limit_except",
    "auth_basic_user_file",
];

/// Directives that are lost, with the nearest.
const LOST: &[(&[&str], &str)] = &[
    (
        &[
            "root",
            "alias",
            "index",
            "autoindex",
            "try_files",
            "expires",
            "sub_filter",
            "sub_filter_once",
            "dav_methods",
        ],
        "equipoise serves no files: keep a web server for them, as a backend",
    ),
    (
        &["fastcgi_pass", "uwsgi_pass", "scgi_pass", "memcached_pass"],
        "backends speak HTTP: put the application's own HTTP server behind the pool",
    ),
    (
        &[
            "gzip",
            "gzip_types",
            "gzip_vary",
            "gzip_proxied",
            "gzip_comp_level",
            "gzip_min_length",
            "gzip_buffers",
            "gzip_http_version",
            "gzip_static",
            "gunzip",
            "brotli",
        ],
        "equipoise does not compress; the backend does",
    ),
    (
        &[
            "proxy_cache",
            "proxy_cache_path",
            "proxy_cache_valid",
            "proxy_cache_key",
            "proxy_cache_bypass",
            "proxy_no_cache",
            "proxy_cache_use_stale",
            "proxy_cache_lock",
            "proxy_cache_min_uses",
            "proxy_cache_background_update",
            "proxy_cache_revalidate",
            "proxy_cache_methods",
            "proxy_ignore_headers",
            "proxy_store",
        ],
        "equipoise has no cache: keep one in front of it",
    ),
    (&["auth_request_set", "satisfy"], "the application authenticates its clients"),
    (
        &["ssl_stapling", "ssl_stapling_verify", "ssl_stapling_file"],
        "the authority's revocation lists; short certificates by [session.tls] auto",
    ),
    (&["ssl_crl"], "clients = { ca = ... } has no list of revoked certificates"),
    (
        &[
            "js_include",
            "js_content",
            "js_import",
            "js_set",
            "lua_package_path",
            "content_by_lua_block",
            "perl_modules",
            "set_by_lua_block",
        ],
        "equipoise runs no scripts",
    ),
    (&["geo", "geoip_country", "geoip2", "userid"], "routes have `source` prefixes"),
    (&["stub_status"], "/metrics and equipoise status"),
    (&["set"], "routes have no variables"),
];

/// Notes the result of each directive by its name. A result that depends on arguments is noted
/// later.
pub(super) fn note(all: &[Directive], report: &mut Report) {
    for directive in all {
        let (name, number) = (directive.name.as_str(), directive.number);
        if TRANSLATED.contains(&name) {
            report.carried(number);
        } else if let Some((_, nearest)) = LOST.iter().find(|(names, _)| names.contains(&name)) {
            let is_off = directive.arg(0) == "off";
            if !is_off {
                report.lost(number, *nearest);
            }
        } else {
            match name {
                "error_page" => report.changes(
                    number,
                    "set error-pages = \"/etc/equipoise/errors\" in [[session]], and put the page there as 503.html",
                ),
                "ssl_ciphers" | "ssl_conf_command" => report.changes(number, "suites are those of `profile`"),
                _ if NOTHING.contains(&name) || changes(directive, report) => {}
                _ => report.lost(number, format!("equipoise has no {name}")),
            }
        }
        let opaque = ["types", "map", "split_clients", "geo", "log_format", "access_by_lua_block"];
        let is_opaque = opaque.contains(&name);
        if !is_opaque {
            note(&directive.block, report);
        }
    }
}

/// Notes directives that have another effect with some arguments. False for other directives.
fn changes(directive: &Directive, report: &mut Report) -> bool {
    let (is_on, is_off) = (directive.arg(0) == "on", directive.arg(0) == "off");
    let (is_noted, how) = match directive.name.as_str() {
        "worker_connections" => (
            true,
            "connections-max of a front door bounds its clients' connections, for each data-plane thread",
        ),
        "error_log" => (true, "events go to standard error; level of [log] chooses them"),
        "log_format" => {
            (true, "access-fields of [log] chooses the fields, or access-format = \"combined\"")
        }
        "proxy_redirect" => (!is_off, "Location of a backend's response stays as it is"),
        "proxy_intercept_errors" => (is_on, "error responses of backends stay"),
        "proxy_ssl_protocols" | "proxy_ssl_ciphers" => {
            (true, "versions and suites are those of TLS 1.2 and 1.3")
        }
        "proxy_pass_request_headers" | "proxy_pass_request_body" => {
            (is_off, "headers and body of a request are sent to the backend")
        }
        "proxy_send_timeout" | "grpc_send_timeout" | "client_body_timeout" | "send_timeout" => {
            (true, "idle-timeout of the front door is the longest time without data")
        }
        "client_header_buffer_size" | "large_client_header_buffers" => {
            (true, "head-max of a front door is the largest head (32KiB)")
        }
        "limit_req_status" | "limit_conn_status" => {
            (directive.arg(0) != "429", "a refusal by a limit is answered 429")
        }
        "ignore_invalid_headers" => (is_off, "requests with invalid headers are refused"),
        "chunked_transfer_encoding" => (is_off, "a response of unknown length is chunked"),
        "charset" => (!is_off, "Content-Type of a backend's response stays as it is"),
        "proxy_upload_rate" => (true, "bandwidth bounds responses alone"),
        "limit_rate_after" => (true, "bandwidth bounds a response from its first byte"),
        "proxy_request_buffering" => (!is_off, "a body is sent to the backend as it arrives"),
        "grpc_set_header" => (true, "request-headers of a route sets headers for backends"),
        "http2_max_concurrent_streams" => {
            (true, "streams-max of a front door has the number (100)")
        }
        "worker_shutdown_timeout" => (true, "grace of [shutdown] has the time (30s)"),
        _ => return false,
    };
    if is_noted {
        report.changes(directive.number, how);
    }
    true
}
