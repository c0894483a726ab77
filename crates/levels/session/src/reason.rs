//! Why something was refused or lost.

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $status:literal;)*) => {
        /// Why a request, connection or datagram was refused or lost. Each is counted under its
        /// name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Reason { $($(#[$doc])* $variant),* }

        impl Reason {
            /// Every reason, in the order of their numbers.
            pub const ALL: &'static [Reason] = &[$(Reason::$variant),*];

            /// The name in metrics, logs and `Proxy-Status`.
            pub const fn name(self) -> &'static str {
                match self { $(Reason::$variant => $name),* }
            }

            /// HTTP status for the client, if a response is still possible; 0: none is sent.
            pub const fn status(self) -> u16 {
                match self { $(Reason::$variant => $status),* }
            }
        }
    };
}

reasons! {
    /// The request is not HTTP/1.x as RFC 9112 writes it.
    RequestMalformed = "request_malformed", 400;
    /// The request's length is ambiguous (smuggling): both, repeated or unreadable length headers.
    RequestFraming = "request_framing", 400;
    /// No `Host`, several, or one that contradicts the target.
    RequestHost = "request_host", 400;
    /// The path can be read in several ways, and the front door has routes.
    RequestPath = "request_path", 400;
    /// The name of a header field has an underscore, and the front door refuses that.
    HeaderUnderscore = "header_underscore", 400;
    /// Request line and headers exceed `head-max` or `headers-max`.
    RequestHeadTooLarge = "request_head_too_large", 431;
    /// The body exceeds `body-max`.
    RequestBodyTooLarge = "request_body_too_large", 413;
    /// CONNECT, which a reverse proxy does not do.
    MethodNotAllowed = "method_not_allowed", 405;
    /// A version other than HTTP/1.0 and HTTP/1.1.
    VersionNotSupported = "version_not_supported", 505;
    /// A transfer coding other than `chunked`.
    CodingNotImplemented = "coding_not_implemented", 501;
    /// CONNECT over HTTP/2 with a `:protocol` other than `websocket`.
    TunnelProtocol = "tunnel_protocol", 501;
    /// An expectation other than 100-continue.
    ExpectationFailed = "expectation_failed", 417;
    /// The front door does not serve the client's address. TCP and UDP clients get no answer.
    SourceDenied = "source_denied", 403;
    /// The client has sent more requests than a `limit` of its front door or route permits. TCP
    /// clients get no answer.
    RateLimited = "rate_limited", 429;
    /// The client has as many requests in flight as a `limit` of the route permits.
    ConcurrencyLimited = "concurrency_limited", 429;
    /// The client has as many open connections as its front door's `limit` permits.
    ConnectionsLimited = "connections_limited", 0;
    /// The head did not arrive in time.
    HeaderTimeout = "header_timeout", 408;
    /// The body stood still for too long.
    BodyTimeout = "body_timeout", 408;
    /// The client closed or reset before its response was complete.
    ClientGone = "client_gone", 0;
    /// The client stopped reading for too long.
    ClientStalled = "client_stalled", 0;
    /// No backend of the pool is eligible.
    NoBackend = "no_backend", 503;
    /// The whole cluster has more to do than it can, and this class of requests is refused first.
    Overloaded = "overloaded", 503;
    /// Every backend is at its concurrency limit, and as many requests wait as may; or a UDP
    /// client's datagram found no backend with room.
    QueueFull = "queue_full", 503;
    /// No backend had room within the time that a request may wait for one.
    QueueTimeout = "queue_timeout", 503;
    /// A peer delegated the request, and every backend here is at its concurrency limit: the peer
    /// has it back. No client sees it.
    NoRoom = "no_room", 503;
    /// The request failed and could be tried again, but the pool's retry budget is used up.
    RetryBudget = "retry_budget", 503;
    /// The backend refused the connection.
    ConnectRefused = "connect_refused", 502;
    /// The backend did not accept the connection in time.
    ConnectTimeout = "connect_timeout", 504;
    /// The backend cannot be reached (no route, no address).
    ConnectFailed = "connect_failed", 502;
    /// A session to a peer could not be encrypted: it is not the node that it should be, does not
    /// take our certificate, or speaks no TLS.
    PeerTls = "peer_tls", 502;
    /// The TLS handshake with the backend failed: it speaks no TLS, has nothing in common with this
    /// side, or rejects our certificate.
    UpstreamTls = "upstream_tls", 502;
    /// The backend's certificate is for other names.
    UpstreamTlsName = "upstream_tls_name", 502;
    /// The backend's certificate has expired, or is not valid yet.
    UpstreamTlsExpired = "upstream_tls_expired", 502;
    /// No trusted authority issued the backend's certificate.
    UpstreamTlsIssuer = "upstream_tls_issuer", 502;
    /// A connection that began with TLS did not show the certificate of a peer, or of one that has
    /// been shut out.
    PeerRefused = "peer_refused", 0;
    /// The backend closed or reset before a whole response.
    UpstreamClosed = "upstream_closed", 502;
    /// The response is not HTTP/1.x, or its length is ambiguous.
    UpstreamMalformed = "upstream_malformed", 502;
    /// A WebSocket, to a backend whose connection over HTTP/2 permits none (RFC 8441).
    UpstreamNoTunnels = "upstream_no_tunnels", 502;
    /// The response has a status that `passive.statuses` lists, and was passed on; or a peer handed
    /// the request back.
    BackendError = "backend_error", 0;
    /// The response did not begin in time.
    ResponseTimeout = "response_timeout", 504;
    /// The response began and then stood still.
    UpstreamStalled = "upstream_stalled", 504;
    /// The whole request took longer than its bound.
    RequestTimeout = "request_timeout", 504;
    /// No file descriptor, port or buffer is left.
    OutOfResources = "out_of_resources", 503;
    /// The process has more memory in use than its bound.
    MemoryShort = "memory_short", 503;
    /// Cut because the process stops and the grace period is over.
    ShuttingDown = "shutting_down", 503;
    /// The backend was set down, and its work was cut.
    BackendRemoved = "backend_removed", 502;
    /// A client of a front door with `tls` does not speak TLS. HTTP is answered 400, in the clear.
    TlsMissing = "tls_missing", 400;
    /// The TLS handshake failed: nothing in common, no certificate for the name, a client without
    /// an accepted certificate, or one that rejects ours, or garbage.
    TlsHandshake = "tls_handshake", 0;
    /// A client asked for a name without a certificate yet: the first one is being obtained.
    TlsNoCertificate = "tls_no_certificate", 0;
    /// The TLS handshake did not end in time.
    TlsTimeout = "tls_timeout", 0;
    /// An HTTP/2 connection or stream that does not keep to RFC 9113.
    Http2Protocol = "http2_protocol", 0;
    /// An HTTP/2 client that keeps resetting its requests, causing errors or sending frames that
    /// belong to no request, and lost its connection.
    Http2Flood = "http2_flood", 0;
    /// An HTTP/3 connection or stream that does not keep to RFC 9114.
    Http3Protocol = "http3_protocol", 0;
    /// An HTTP/3 client that keeps resetting its requests, and lost its connection.
    Http3Flood = "http3_flood", 0;
    /// No valid PROXY protocol header where one is required.
    ProxyHeader = "proxy_header", 0;
    /// A connection to a front door with `accept-proxy`, from an address that `trusted` does not
    /// list.
    ProxyUntrusted = "proxy_untrusted", 0;
    /// More client addresses than the front door keeps.
    TooManyClients = "too_many_clients", 0;
    /// A UDP client that had sent one datagram and had no answer, when another needed its place.
    ClientEvicted = "client_evicted", 0;
    /// A datagram that neither side's queue could take.
    DatagramDropped = "datagram_dropped", 0;
    /// Nothing moved for the idle time.
    IdleTimeout = "idle_timeout", 0;
}

impl Reason {
    /// How many there are.
    pub const COUNT: usize = Reason::ALL.len();

    /// Whether no connection to the backend was made.
    pub(crate) const fn is_not_connected(self) -> bool {
        matches!(
            self,
            Reason::ConnectRefused
                | Reason::ConnectFailed
                | Reason::ConnectTimeout
                | Reason::UpstreamTls
                | Reason::UpstreamTlsName
                | Reason::UpstreamTlsExpired
                | Reason::UpstreamTlsIssuer
        )
    }

    /// Whether the backend is at fault: passive health counts it.
    pub const fn blames_backend(self) -> bool {
        matches!(
            self,
            Reason::ConnectRefused
                | Reason::ConnectTimeout
                | Reason::ConnectFailed
                | Reason::PeerTls
                | Reason::UpstreamTls
                | Reason::UpstreamTlsName
                | Reason::UpstreamTlsExpired
                | Reason::UpstreamTlsIssuer
                | Reason::UpstreamClosed
                | Reason::UpstreamMalformed
                | Reason::BackendError
                | Reason::ResponseTimeout
                | Reason::UpstreamStalled
        )
    }
}
