"""The settings of a broker (https://kafka.apache.org/documentation/#brokerconfigs) that Barnabas supports.

The defaults are Apache Kafka's, with a few exceptions, so that a broker starts without any settings on one
machine. docs/reference/differences.md lists the exceptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from barnabas.broker.config.declaration import (
    DOUBLE_MAX,
    INT_MAX,
    LONG_MAX,
    Setting,
    Update,
    boolean,
    double,
    integer,
    long,
    password,
    short,
    string,
    text_list,
)
from barnabas.broker.config.kafka_only import unsupported_reason
from barnabas.broker.config.layers import Layer, Settings, Source
from barnabas.broker.config.listener_settings import ListenerSetting, overrides
from barnabas.broker.config.topic import TopicConfig

_NO_TICKETS = (
    "Has no effect, because a broker with a keytab needs no tickets. If a broker with GSSAPI has this "
    "setting, it logs a warning."
)


def _topic_default(name: str, of: str, **changes: Any) -> Any:
    """Declare the broker's setting `name`, whose value is the default of the topic's setting `of`.

    Both settings have the same type and limits. `changes` are the fields of `Setting` in which they differ.
    """
    changes = {"name": name, "synonyms": (), "doc": f"The default of a topic's {of}.", **changes}
    return replace(TopicConfig.declared[of], **changes)


class BrokerConfig(Settings):
    """The settings of one broker."""

    spellings: ClassVar[Mapping[str, str]] = {"broker.id": "node.id", "log.dir": "log.dirs"}

    @classmethod
    def find(cls, name: str) -> Setting:
        override = ListenerSetting.parse(name)
        if override is None:
            return super().find(name)
        may_change = override.may_change or override.may_precede
        update = Update.PER_BROKER if may_change else Update.READ_ONLY
        return replace(super().find(override.overridden), name=override.name, update=update)

    def for_listener(self, listener: str, mechanism: str = "") -> BrokerConfig:
        """Return the settings that apply to the connections of a listener.

        Values for the listener (`ListenerSetting`) override the broker's values. If `mechanism` is the name
        of a SASL mechanism, values for this mechanism on the listener override both.
        """
        known: dict[tuple[str, str], BrokerConfig] = self.__dict__.setdefault("_for_listeners", {})
        config = known.get((listener, mechanism))
        if config is None:
            texts: dict[str, str] = {}
            for layer in reversed(self.layers):
                if layer.source is not Source.DEFAULT_CONFIG:
                    texts |= overrides(layer.texts, listener, mechanism)
            layers = [Layer(Source.STATIC_BROKER_CONFIG, texts), *self.layers]
            config = self if not texts else BrokerConfig.from_layers(layers, self.given)
            known[listener, mechanism] = config
        return config

    def has_own(self, listener: str, name: str) -> bool:
        """Whether a listener has its own value of the setting `name`.

        This value can equal the broker's value.
        """
        config = self.for_listener(listener)
        return config is not self and name in config.layers[0].texts

    @classmethod
    def _explain_unknown(cls, name: str) -> str:
        reason = unsupported_reason(name)
        return super()._explain_unknown(name) if reason is None else f"{name} is not supported: {reason}"

    # --- who and where ---
    node_id: int = integer("node.id", 1, minimum=0, doc="This broker's number, unique in its cluster.")
    listeners: tuple[str, ...] = text_list(
        "listeners",
        ("PLAINTEXT://127.0.0.1:9092",),
        doc="The listeners of the broker: NAME://HOST:PORT, separated by commas. Port 0 selects a free port.",
    )
    advertised_listeners: tuple[str, ...] = text_list(
        "advertised.listeners",
        (),
        doc="The addresses that clients connect to, by listener name. Empty means the addresses of "
        "listeners.",
    )
    listener_security_protocol_map: str = string(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        doc="The security protocol of each listener name, NAME:PROTOCOL. The protocols are PLAINTEXT, "
        "SSL (which is TLS), SASL_PLAINTEXT and SASL_SSL.",
    )
    inter_broker_listener_name: str | None = string(
        "inter.broker.listener.name",
        None,
        doc="The listener that the brokers of a cluster use to connect to each other; each broker "
        "must have it. Unset means PLAINTEXT, or the first of listeners if none has this name.",
    )
    security_inter_broker_protocol: str | None = string(
        "security.inter.broker.protocol",
        None,
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        doc="The security protocol between the brokers of a cluster: brokers use the first listener that "
        "has it. Set either this or inter.broker.listener.name.",
    )
    log_dirs: tuple[str, ...] = text_list(
        "log.dirs", ("barnabas-data",), doc="The folders that hold the data."
    )
    metadata_store: str | None = string(
        "metadata.store",
        None,
        choices=("embedded", "memory", "zookeeper"),
        doc="The store of the cluster's metadata: embedded (files beside the data), memory (lost at "
        "stop) or zookeeper. Unset means zookeeper if zookeeper.connect is set, else embedded.",
    )
    zookeeper_connect: str | None = string(
        "zookeeper.connect",
        None,
        doc="The ZooKeeper servers that the brokers of a cluster share: HOST:PORT,HOST:PORT/chroot. "
        "With a chroot for each cluster, several clusters can share one ensemble. The first "
        "broker creates a missing chroot. `barnabas start --brokers` gives its brokers unix:PATH, the "
        "socket of its own store.",
    )
    zookeeper_session_timeout_ms: int = integer(
        "zookeeper.session.timeout.ms",
        9_000,
        minimum=1,
        doc="The time, in milliseconds, after which ZooKeeper ends the session of a broker that sends "
        "nothing. ZooKeeper may limit it. Apache Kafka's default with ZooKeeper was 18 s; with "
        "KRaft (broker.session.timeout.ms) it is 9 s.",
    )
    zookeeper_connection_timeout_ms: int | None = integer(
        "zookeeper.connection.timeout.ms",
        None,
        minimum=1,
        doc="The time, in milliseconds, that a starting broker waits for ZooKeeper. Unset means "
        "zookeeper.session.timeout.ms.",
    )
    zookeeper_max_in_flight_requests: int = integer(
        "zookeeper.max.in.flight.requests",
        10,
        minimum=1,
        doc="The largest number of unanswered requests to ZooKeeper; the broker uses 200 at most.",
    )
    zookeeper_set_acl: bool = boolean(
        "zookeeper.set.acl",
        False,
        doc="If true, only brokers can change the nodes that they create in ZooKeeper, and read "
        "passwords there. All brokers need the same zookeeper.digest for this.",
    )
    zookeeper_digest: str | None = password(
        "zookeeper.digest",
        doc="The login of this broker at ZooKeeper, USER:PASSWORD (its scheme digest). Kafka has no "
        "such setting.",
    )
    zookeeper_ssl_client_enable: bool = boolean(
        "zookeeper.ssl.client.enable",
        False,
        doc="If true, the broker uses TLS with ZooKeeper, at its secureClientPort.",
    )
    zookeeper_clientCnxnSocket: str | None = string(
        "zookeeper.clientCnxnSocket",
        None,
        choices=("org.apache.zookeeper.ClientCnxnSocketNetty",),
        doc="Kafka needs this setting with zookeeper.ssl.client.enable. Barnabas does not: you can omit it.",
    )
    zookeeper_ssl_keystore_location: str | None = string(
        "zookeeper.ssl.keystore.location",
        None,
        doc="The PEM file with the key and the certificate that this broker presents to ZooKeeper, if "
        "ZooKeeper requires one.",
    )
    zookeeper_ssl_keystore_type: str = string(
        "zookeeper.ssl.keystore.type",
        "PEM",
        choices=("PEM",),
        doc="The format of zookeeper.ssl.keystore.location: only PEM.",
    )
    zookeeper_ssl_keystore_password: str | None = password(
        "zookeeper.ssl.keystore.password",
        doc="The password of the private key in zookeeper.ssl.keystore.location.",
    )
    zookeeper_ssl_truststore_location: str | None = string(
        "zookeeper.ssl.truststore.location",
        None,
        doc="The PEM file with the certificates that sign those of ZooKeeper. Unset means the system's.",
    )
    zookeeper_ssl_truststore_type: str = string(
        "zookeeper.ssl.truststore.type",
        "PEM",
        doc="The format of zookeeper.ssl.truststore.location: only PEM.",
    )
    zookeeper_ssl_enabled_protocols: tuple[str, ...] = text_list(
        "zookeeper.ssl.enabled.protocols",
        ("TLSv1.2", "TLSv1.3"),
        choices=("TLSv1.2", "TLSv1.3"),
        doc="The permitted versions of TLS with ZooKeeper.",
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = string(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "HTTPS",
        choices=("HTTPS", "https", ""),
        doc="HTTPS: ZooKeeper's certificate must name the host in zookeeper.connect. Empty switches the "
        "check off.",
    )
    broker_rack: str | None = string("broker.rack", None, doc="The rack of this broker.")

    # --- security ---
    sasl_enabled_mechanisms: tuple[str, ...] = text_list(
        "sasl.enabled.mechanisms",
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"),
        doc="The mechanisms that clients can use to log in at a listener with SASL. PLAIN checks the "
        "same passwords as SCRAM. GSSAPI is Kerberos, and needs the extra gssapi.",
    )
    sasl_server_max_receive_size: int = integer(
        "sasl.server.max.receive.size",
        524_288,
        minimum=1,
        doc="The largest request before a client has logged in, in bytes.",
    )
    sasl_mechanism_inter_broker_protocol: str = string(
        "sasl.mechanism.inter.broker.protocol",
        "SCRAM-SHA-512",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        doc="The mechanism that this broker uses to log in to other brokers, if their listener has SASL.",
    )
    sasl_jaas_config: str | None = password(
        "sasl.jaas.config",
        doc='The login of this broker at other brokers: MODULE required username="..." '
        'password="...";. The broker creates the user if the cluster does not have it.',
    )
    sasl_kerberos_service_name: str | None = string(
        "sasl.kerberos.service.name",
        None,
        update=Update.PER_BROKER,
        doc="The first part of the principal for which clients of GSSAPI request tickets, usually "
        "kafka. The keytab is in sasl.jaas.config: com.sun.security.auth.module.Krb5LoginModule "
        "required keyTab=... principal=...; The broker uses a new value after its next start.",
    )
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = text_list(
        "sasl.kerberos.principal.to.local.rules",
        ("DEFAULT",),
        update=Update.PER_BROKER,
        doc="The rules that turn Kerberos principals into users; the first rule that matches applies. "
        "DEFAULT takes the first part if the realm is the system's own. RULE:... has the same "
        "format as in Hadoop. The broker uses new rules after its next start.",
    )
    sasl_kerberos_kinit_cmd: str = string(
        "sasl.kerberos.kinit.cmd", "/usr/bin/kinit", update=Update.PER_BROKER, doc=_NO_TICKETS
    )
    sasl_kerberos_min_time_before_relogin: int = long(
        "sasl.kerberos.min.time.before.relogin", 60_000, update=Update.PER_BROKER, doc=_NO_TICKETS
    )
    sasl_kerberos_ticket_renew_jitter: float = double(
        "sasl.kerberos.ticket.renew.jitter", 0.05, update=Update.PER_BROKER, doc=_NO_TICKETS
    )
    sasl_kerberos_ticket_renew_window_factor: float = double(
        "sasl.kerberos.ticket.renew.window.factor", 0.8, update=Update.PER_BROKER, doc=_NO_TICKETS
    )
    connections_max_reauth_ms: int = long(
        "connections.max.reauth.ms",
        0,
        minimum=0,
        doc="The duration of a login, in milliseconds. Clients log in again before it ends, or the "
        "broker disconnects them at their next request. 0 means no limit. A login by a token ends "
        "with the token at the latest.",
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = string(
        "sasl.oauthbearer.jwks.endpoint.url",
        None,
        doc="The address of the keys that sign the tokens of OAUTHBEARER, as a JWKS: https://... of "
        "the identity provider, or file:///... on this machine.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        3_600_000,
        minimum=1000,
        doc="The time, in milliseconds, after which the broker reads the keys again.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = long(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        100,
        minimum=1,
        doc="The time after a failed read of the keys before the broker tries again, in milliseconds.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = long(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        10_000,
        minimum=1,
        doc="The longest time before the broker tries again to read the keys, in milliseconds. The time "
        "doubles with each failure.",
    )
    sasl_oauthbearer_expected_issuer: str | None = string(
        "sasl.oauthbearer.expected.issuer", None, doc="The value that the claim iss of a token must have."
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = text_list(
        "sasl.oauthbearer.expected.audience",
        (),
        doc="The claim aud of a token must have one of these values.",
    )
    sasl_oauthbearer_allow_unverified_issuer: bool = boolean(
        "sasl.oauthbearer.allow.unverified.issuer",
        False,
        doc="If true, and no issuer is expected, the broker accepts tokens of any issuer.",
    )
    sasl_oauthbearer_allow_unverified_audience: bool = boolean(
        "sasl.oauthbearer.allow.unverified.audience",
        False,
        doc="If true, and no audience is expected, the broker accepts tokens for any audience.",
    )
    sasl_oauthbearer_clock_skew_seconds: int = integer(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        minimum=0,
        doc="The permitted difference between the clocks of the identity provider and the broker, in "
        "seconds.",
    )
    sasl_oauthbearer_sub_claim_name: str = string(
        "sasl.oauthbearer.sub.claim.name",
        "sub",
        doc="The claim of a token that names the user; ACLs use User:NAME.",
    )
    sasl_oauthbearer_scope_claim_name: str = string(
        "sasl.oauthbearer.scope.claim.name",
        "scope",
        doc="The claim of a token that names its scopes: a string, or a list of strings.",
    )
    barnabas_oauthbearer_unsigned: bool = boolean(
        "barnabas.oauthbearer.unsigned",
        False,
        doc="If true, OAUTHBEARER accepts unsigned tokens, for tests: every listener with SASL must be "
        "on a loopback address. Kafka has no such setting.",
    )
    connection_failed_authentication_delay_ms: int = integer(
        "connection.failed.authentication.delay.ms",
        100,
        minimum=0,
        doc="The delay of the answer to a failed login, in milliseconds.",
    )
    ssl_keystore_type: str = string(
        "ssl.keystore.type",
        "PEM",
        doc="The format of ssl.keystore.location: PEM or PKCS12. The broker finds the format of the file "
        "itself.",
    )
    ssl_keystore_location: str | None = string(
        "ssl.keystore.location",
        None,
        doc="The file with the broker's private key, its certificate and the signing certificates: PEM, or "
        "PKCS12.",
    )
    ssl_keystore_password: str | None = password(
        "ssl.keystore.password", doc="The password of a PKCS12 keystore."
    )
    ssl_key_password: str | None = password(
        "ssl.key.password", doc="The password of an encrypted private key."
    )
    ssl_keystore_key: str | None = password(
        "ssl.keystore.key",
        doc="The broker's private key itself, as PEM (PKCS#8, encrypted or not), instead of "
        "ssl.keystore.location. Spaces can replace line ends.",
    )
    ssl_keystore_certificate_chain: str | None = password(
        "ssl.keystore.certificate.chain",
        doc="The certificate of ssl.keystore.key and the signing certificates, as PEM.",
    )
    ssl_truststore_type: str = string(
        "ssl.truststore.type",
        "PEM",
        doc="The format of ssl.truststore.location: PEM or PKCS12. The broker finds the format of the file "
        "itself.",
    )
    ssl_truststore_location: str | None = string(
        "ssl.truststore.location",
        None,
        doc="The file with the certificates that must sign clients' certificates: PEM, or PKCS12.",
    )
    ssl_truststore_password: str | None = password(
        "ssl.truststore.password", doc="The password of a PKCS12 truststore."
    )
    ssl_truststore_certificates: str | None = password(
        "ssl.truststore.certificates",
        doc="The certificates that must sign clients' certificates, as PEM, instead of "
        "ssl.truststore.location.",
    )
    ssl_allow_dn_changes: bool = boolean(
        "ssl.allow.dn.changes",
        False,
        doc="If true, a new certificate with another subject can replace the present one while the broker "
        "runs.",
    )
    ssl_allow_san_changes: bool = boolean(
        "ssl.allow.san.changes",
        False,
        doc="If true, a new certificate that lacks some alternative names of the present one can replace it "
        "while the broker runs.",
    )
    ssl_client_auth: str = string(
        "ssl.client.auth",
        "none",
        choices=("none", "requested", "required"),
        doc="Whether a listener with TLS demands a certificate of clients: none, requested or required.",
    )
    ssl_principal_mapping_rules: str = string(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        doc="The rules that turn the certificate of a client without a login into its user, separated "
        "by commas; the first rule that matches applies. RULE:PATTERN/NAME/ turns a subject that "
        "PATTERN matches into NAME, where $1 is its first group (L or U at the end: in lower or "
        "upper case). DEFAULT is the subject itself.",
    )
    ssl_enabled_protocols: tuple[str, ...] = text_list(
        "ssl.enabled.protocols",
        ("TLSv1.2", "TLSv1.3"),
        choices=("TLSv1.2", "TLSv1.3"),
        doc="The permitted versions of TLS.",
    )
    ssl_cipher_suites: tuple[str, ...] = text_list(
        "ssl.cipher.suites",
        (),
        doc="The cipher suites of TLS 1.2, by OpenSSL's names; empty means OpenSSL's choice.",
    )

    delegation_token_secret_key: str | None = password(
        "delegation.token.secret.key",
        synonyms=("delegation.token.master.key",),
        doc="The secret from which the broker computes the passwords of delegation tokens: the same "
        "on all brokers. Unset means that there are no delegation tokens.",
    )
    delegation_token_master_key: str | None = password(
        "delegation.token.master.key", doc="The old name of delegation.token.secret.key."
    )
    delegation_token_max_lifetime_ms: int = long(
        "delegation.token.max.lifetime.ms",
        604_800_000,
        minimum=1,
        doc="The longest life of a delegation token, in milliseconds, with any number of renewals.",
    )
    delegation_token_expiry_time_ms: int = long(
        "delegation.token.expiry.time.ms",
        86_400_000,
        minimum=1,
        doc="The time, in milliseconds, after which a delegation token expires unless a client renews it.",
    )
    delegation_token_expiry_check_interval_ms: int = long(
        "delegation.token.expiry.check.interval.ms",
        3_600_000,
        minimum=1,
        doc="The interval, in milliseconds, at which expired delegation tokens are deleted.",
    )

    authorizer_class_name: str | None = string(
        "authorizer.class.name",
        None,
        choices=(
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "kafka.security.authorizer.AclAuthorizer",
        ),
        doc="The authorizer, which applies ACLs: either name of Kafka's own authorizers selects the one of "
        "Barnabas. Unset means that every client may do everything.",
    )
    super_users: str | None = string(
        "super.users",
        None,
        doc="The principals that may do everything, whatever the ACLs say, separated by semicolons: "
        "User:admin;User:ops. It must include the user of the brokers of a cluster, or that user "
        "needs CLUSTER_ACTION.",
    )
    allow_everyone_if_no_acl_found: bool = boolean(
        "allow.everyone.if.no.acl.found",
        False,
        doc="If true, every client may use a resource that has no ACL.",
    )

    barnabas_audit_file: str | None = string(
        "barnabas.audit.file",
        None,
        doc="The file of the audit log: logins, denials and changes, a JSON object a line. Unset "
        "means no audit log. Each broker needs its own file.",
    )
    barnabas_audit_file_max_bytes: int = long(
        "barnabas.audit.file.max.bytes",
        104_857_600,
        minimum=4_096,
        doc="The size, in bytes, at which the broker renames an audit log and starts the next one.",
    )
    barnabas_audit_files: int = integer(
        "barnabas.audit.files",
        10,
        minimum=0,
        maximum=1_000,
        doc="The number of older audit logs to keep, as FILE.1, FILE.2 and so on.",
    )

    # --- connections ---
    socket_request_max_bytes: int = integer(
        "socket.request.max.bytes", 104_857_600, minimum=1, doc="The largest request that is read, in bytes."
    )
    socket_send_buffer_bytes: int = integer(
        "socket.send.buffer.bytes",
        102_400,
        minimum=-1,
        doc="SO_SNDBUF of each connection; -1 leaves it to the system.",
    )
    socket_receive_buffer_bytes: int = integer(
        "socket.receive.buffer.bytes",
        102_400,
        minimum=-1,
        doc="SO_RCVBUF of each connection; -1 leaves it to the system.",
    )
    socket_listen_backlog_size: int = integer(
        "socket.listen.backlog.size",
        50,
        minimum=1,
        doc="The largest number of connections that wait to be accepted.",
    )
    connections_max_idle_ms: int = long(
        "connections.max.idle.ms",
        600_000,
        minimum=-1,
        doc="The time after which the broker closes an idle connection, in milliseconds; -1 means no limit.",
    )
    max_connections: int = integer(
        "max.connections",
        INT_MAX,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The largest number of connections to the broker.",
    )
    max_connections_per_ip: int = integer(
        "max.connections.per.ip",
        INT_MAX,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The largest number of connections from one address.",
    )
    max_connections_per_ip_overrides: tuple[str, ...] = text_list(
        "max.connections.per.ip.overrides",
        (),
        items=(r"[0-9a-fA-F.:]+:[0-9]{1,9}", "write ADDRESS:COUNT, such as 192.0.2.7:100"),
        update=Update.CLUSTER_WIDE,
        doc="The largest number of connections from single addresses, ADDRESS:COUNT each. The broker "
        "does not look up names.",
    )
    max_connection_creation_rate: int = integer(
        "max.connection.creation.rate",
        INT_MAX,
        minimum=1,
        update=Update.CLUSTER_WIDE,
        doc="The largest number of new connections a second; further ones wait. If there are several "
        "listeners, connections to the inter-broker listener do not wait.",
    )

    # --- quotas ---
    quota_window_num: int = integer(
        "quota.window.num",
        11,
        minimum=2,
        doc="The number of samples over which the broker measures the use of clients.",
    )
    quota_window_size_seconds: int = integer(
        "quota.window.size.seconds",
        1,
        minimum=1,
        doc="The length of each sample of quota.window.num, in seconds.",
    )
    controller_quota_window_num: int = integer(
        "controller.quota.window.num",
        11,
        minimum=1,
        doc="The number of samples over which the controller counts created and deleted partitions.",
    )
    controller_quota_window_size_seconds: int = integer(
        "controller.quota.window.size.seconds",
        1,
        minimum=1,
        doc="The length of each sample of controller.quota.window.num, in seconds.",
    )

    # --- topics ---
    auto_create_topics_enable: bool = boolean(
        "auto.create.topics.enable",
        True,
        doc="If true, a request for a topic that does not exist creates it.",
    )
    delete_topic_enable: bool = boolean(
        "delete.topic.enable", True, doc="If false, the broker rejects DeleteTopics."
    )
    num_partitions: int = integer(
        "num.partitions", 1, minimum=1, doc="The default number of partitions of a topic."
    )
    default_replication_factor: int = integer(
        "default.replication.factor", 1, minimum=1, doc="The default number of replicas of a partition."
    )

    # --- replication ---
    auto_leader_rebalance_enable: bool = boolean(
        "auto.leader.rebalance.enable",
        True,
        doc="If true, the controller elects preferred leaders again when too many partitions have other "
        "leaders.",
    )
    leader_imbalance_check_interval_seconds: int = long(
        "leader.imbalance.check.interval.seconds",
        300,
        minimum=1,
        maximum=INT_MAX,
        doc="The interval, in seconds, at which the controller looks for partitions that their preferred "
        "leader does not lead.",
    )
    leader_imbalance_per_broker_percentage: int = integer(
        "leader.imbalance.per.broker.percentage",
        10,
        minimum=0,
        doc="The permitted percentage of a broker's preferred partitions that have another leader.",
    )
    leader_replication_throttled_rate: int = long(
        "leader.replication.throttled.rate",
        LONG_MAX,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The largest rate at which a broker sends its throttled replicas, in bytes a second.",
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = long(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG_MAX,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The largest rate at which a broker copies logs from one of its log directories to "
        "another, in bytes a second.",
    )
    follower_replication_throttled_rate: int = long(
        "follower.replication.throttled.rate",
        LONG_MAX,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The largest rate at which a broker fetches its throttled replicas, in bytes a second.",
    )

    # --- fetch ---
    telemetry_max_bytes: int = integer(
        "telemetry.max.bytes",
        1_048_576,
        minimum=1,
        doc="The largest push of a client's metrics, in bytes, both as sent and decompressed (KIP-714). "
        "A larger one gets TELEMETRY_TOO_LARGE.",
    )
    fetch_max_bytes: int = integer(
        "fetch.max.bytes", 57_671_680, minimum=1024, doc="The largest answer to one fetch, in bytes."
    )
    max_incremental_fetch_session_cache_slots: int = integer(
        "max.incremental.fetch.session.cache.slots",
        1000,
        minimum=0,
        doc="The largest number of fetch sessions (KIP-227) that the broker keeps.",
    )
    max_request_partition_size_limit: int = integer(
        "max.request.partition.size.limit",
        2000,
        minimum=1,
        doc="The largest number of partitions in one DescribeTopicPartitions response.",
    )

    # --- the log: defaults for topics ---
    log_cleanup_policy: tuple[str, ...] = _topic_default("log.cleanup.policy", "cleanup.policy")
    compression_type: str = _topic_default("compression.type", "compression.type")
    compression_gzip_level: int = _topic_default("compression.gzip.level", "compression.gzip.level")
    compression_lz4_level: int = _topic_default("compression.lz4.level", "compression.lz4.level")
    compression_zstd_level: int = _topic_default("compression.zstd.level", "compression.zstd.level")
    log_segment_delete_delay_ms: int = _topic_default("log.segment.delete.delay.ms", "file.delete.delay.ms")
    log_flush_interval_messages: int = _topic_default("log.flush.interval.messages", "flush.messages")
    log_flush_interval_ms: int | None = _topic_default(
        "log.flush.interval.ms",
        "flush.ms",
        default=None,
        synonyms=("log.flush.scheduler.interval.ms",),
        doc="The default of a topic's flush.ms. Unset means log.flush.scheduler.interval.ms.",
    )
    log_flush_scheduler_interval_ms: int = long(
        "log.flush.scheduler.interval.ms",
        LONG_MAX,
        minimum=1,
        doc="The default of log.flush.interval.ms, in milliseconds.",
    )
    log_index_interval_bytes: int = _topic_default("log.index.interval.bytes", "index.interval.bytes")
    log_index_size_max_bytes: int = _topic_default("log.index.size.max.bytes", "segment.index.bytes")
    message_max_bytes: int = _topic_default("message.max.bytes", "max.message.bytes")
    log_message_timestamp_after_max_ms: int = _topic_default(
        "log.message.timestamp.after.max.ms", "message.timestamp.after.max.ms"
    )
    log_message_timestamp_before_max_ms: int = _topic_default(
        "log.message.timestamp.before.max.ms", "message.timestamp.before.max.ms"
    )
    log_message_timestamp_type: str = _topic_default("log.message.timestamp.type", "message.timestamp.type")
    min_insync_replicas: int = _topic_default(
        "min.insync.replicas",
        "min.insync.replicas",
        doc="The default of a topic's min.insync.replicas. The first controller stores its own value for "
        "all brokers.",
    )
    unclean_leader_election_enable: bool = _topic_default(
        "unclean.leader.election.enable", "unclean.leader.election.enable"
    )
    log_retention_bytes: int = _topic_default("log.retention.bytes", "retention.bytes")
    log_retention_ms: int | None = _topic_default(
        "log.retention.ms",
        "retention.ms",
        default=None,
        synonyms=("log.retention.minutes", "log.retention.hours"),
        doc="The default of a topic's retention.ms. Unset means log.retention.minutes.",
    )
    log_retention_minutes: int | None = integer(
        "log.retention.minutes",
        None,
        doc="The default of a topic's retention.ms, in minutes. Unset means log.retention.hours.",
    )
    log_retention_hours: int = integer(
        "log.retention.hours", 168, doc="The default of a topic's retention.ms, in hours."
    )
    log_segment_bytes: int = _topic_default("log.segment.bytes", "segment.bytes")
    log_roll_jitter_ms: int | None = _topic_default(
        "log.roll.jitter.ms",
        "segment.jitter.ms",
        default=None,
        synonyms=("log.roll.jitter.hours",),
        doc="The default of a topic's segment.jitter.ms. Unset means log.roll.jitter.hours.",
    )
    log_roll_jitter_hours: int = integer(
        "log.roll.jitter.hours", 0, minimum=0, doc="The default of a topic's segment.jitter.ms, in hours."
    )
    log_roll_ms: int | None = _topic_default(
        "log.roll.ms",
        "segment.ms",
        default=None,
        synonyms=("log.roll.hours",),
        doc="The default of a topic's segment.ms. Unset means log.roll.hours.",
    )
    log_roll_hours: int = integer(
        "log.roll.hours", 168, minimum=1, doc="The default of a topic's segment.ms, in hours."
    )

    log_cleaner_delete_retention_ms: int = _topic_default(
        "log.cleaner.delete.retention.ms", "delete.retention.ms"
    )
    log_cleaner_max_compaction_lag_ms: int = _topic_default(
        "log.cleaner.max.compaction.lag.ms", "max.compaction.lag.ms"
    )
    log_cleaner_min_cleanable_ratio: float = _topic_default(
        "log.cleaner.min.cleanable.ratio", "min.cleanable.dirty.ratio"
    )
    log_cleaner_min_compaction_lag_ms: int = _topic_default(
        "log.cleaner.min.compaction.lag.ms", "min.compaction.lag.ms"
    )

    # --- the log: compaction ---
    log_cleaner_enable: bool = boolean(
        "log.cleaner.enable",
        True,
        doc="If false, the broker does not compact topics with cleanup.policy=compact.",
    )
    log_cleaner_threads: int = integer(
        "log.cleaner.threads",
        1,
        minimum=0,
        doc="The number of logs that the broker compacts at the same time.",
    )
    log_cleaner_dedupe_buffer_size: int = long(
        "log.cleaner.dedupe.buffer.size",
        134_217_728,
        minimum=1,
        update=Update.CLUSTER_WIDE,
        doc="The memory for the keys of the logs being compacted, all together, in bytes.",
    )
    log_cleaner_io_buffer_size: int = integer(
        "log.cleaner.io.buffer.size",
        524_288,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The memory for reading and writing the logs being compacted, all together, in bytes.",
    )
    log_cleaner_io_max_bytes_per_second: float = double(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE_MAX,
        minimum=1,
        update=Update.CLUSTER_WIDE,
        doc="The largest rate at which compaction reads and writes, in bytes a second.",
    )
    log_cleaner_backoff_ms: int = long(
        "log.cleaner.backoff.ms",
        15_000,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The pause, in milliseconds, when no log is dirty enough to compact.",
    )

    # --- the log: upkeep ---
    log_retention_check_interval_ms: int = long(
        "log.retention.check.interval.ms",
        300_000,
        minimum=1,
        doc="The interval, in milliseconds, at which the broker applies retention to the logs.",
    )
    log_flush_offset_checkpoint_interval_ms: int = integer(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        minimum=0,
        doc="The interval, in milliseconds, at which the broker stores the recovery points.",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = integer(
        "log.flush.start.offset.checkpoint.interval.ms",
        60_000,
        minimum=0,
        doc="The interval, in milliseconds, at which the broker stores the log start offsets.",
    )
    replica_fetch_max_bytes: int = integer(
        "replica.fetch.max.bytes",
        1_048_576,
        minimum=0,
        doc="The largest amount of a partition that a follower requests at once, in bytes. The leader "
        "also sends a larger batch.",
    )
    replica_fetch_response_max_bytes: int = integer(
        "replica.fetch.response.max.bytes",
        10_485_760,
        minimum=0,
        doc="The largest amount that a follower requests at once, in bytes. The leader also sends a "
        "larger batch.",
    )
    replica_fetch_min_bytes: int = integer(
        "replica.fetch.min.bytes",
        1,
        doc="The number of bytes with which the leader answers a follower before replica.fetch.wait.max.ms "
        "has passed.",
    )
    replica_fetch_wait_max_ms: int = integer(
        "replica.fetch.wait.max.ms",
        500,
        minimum=0,
        doc="The longest time, in milliseconds, that a follower's fetch waits for records at the leader.",
    )
    replica_fetch_backoff_ms: int = integer(
        "replica.fetch.backoff.ms",
        1000,
        minimum=0,
        doc="The longest pause of a follower before it tries again, in milliseconds. The first pause "
        "is shorter.",
    )
    replica_socket_timeout_ms: int = integer(
        "replica.socket.timeout.ms",
        30_000,
        minimum=1,
        doc="The time, in milliseconds, that a follower waits for a response beyond "
        "replica.fetch.wait.max.ms.",
    )
    replica_selector_class: str = string(
        "replica.selector.class",
        "",
        choices=(
            "",
            "org.apache.kafka.common.replica.LeaderSelector",
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        ),
        doc="The replica that consumers read from: with RackAwareReplicaSelector one in their own rack, "
        "else the leader.",
    )
    controlled_shutdown_enable: bool = boolean(
        "controlled.shutdown.enable",
        True,
        doc="If true, a stopping broker waits until other brokers lead its partitions.",
    )
    controlled_shutdown_max_retries: int = integer(
        "controlled.shutdown.max.retries",
        3,
        minimum=0,
        doc="The largest number of times that a stopping broker waits for "
        "controlled.shutdown.retry.backoff.ms.",
    )
    controlled_shutdown_retry_backoff_ms: int = long(
        "controlled.shutdown.retry.backoff.ms",
        5000,
        minimum=0,
        doc="The length of each wait of controlled.shutdown.max.retries, in milliseconds.",
    )
    replica_lag_time_max_ms: int = long(
        "replica.lag.time.max.ms",
        30_000,
        minimum=1,
        doc="The time, in milliseconds, after which a follower that has not caught up with its leader "
        "leaves the ISR: the ISR shrinks. When the follower has caught up, the ISR expands.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = long(
        "replica.high.watermark.checkpoint.interval.ms",
        5000,
        minimum=1,
        doc="The interval, in milliseconds, at which the broker stores the high watermarks.",
    )
    num_recovery_threads_per_data_dir: int = integer(
        "num.recovery.threads.per.data.dir",
        2,
        minimum=1,
        doc="The number of threads that recover a data folder after a crash.",
    )
    barnabas_acks_fsync: bool = boolean(
        "barnabas.acks.fsync",
        False,
        doc="If true, the broker fsyncs a record before it acknowledges it (acks 1 and all); requests share "
        "fsyncs.",
    )
    barnabas_metrics_listener: str | None = string(
        "barnabas.metrics.listener",
        None,
        doc="The address of metrics and health over HTTP, as HOST:PORT; port 0 selects a free port. A "
        "client that reaches the address can read the names of topics and groups. Unset means "
        "none.",
    )
    barnabas_slow_request_ms: int = integer(
        "barnabas.slow.request.ms",
        0,
        minimum=0,
        doc="The broker logs a request that takes this time or longer, in milliseconds. The time in which "
        "the request waits for records or for its group does not count. 0 means that the broker logs "
        "no request.",
    )
    producer_id_expiration_ms: int = integer(
        "producer.id.expiration.ms",
        86_400_000,
        minimum=1,
        update=Update.CLUSTER_WIDE,
        doc="The time, in milliseconds, after which the broker deletes the state of an inactive idempotent "
        "producer.",
    )
    producer_id_expiration_check_interval_ms: int = integer(
        "producer.id.expiration.check.interval.ms",
        600_000,
        minimum=1,
        doc="The interval, in milliseconds, at which the broker deletes expired producer state.",
    )

    # --- groups ---
    group_initial_rebalance_delay_ms: int = integer(
        "group.initial.rebalance.delay.ms",
        0,
        minimum=0,
        doc="The time, in milliseconds, that an empty group waits for more members before its first "
        "rebalance.",
    )
    group_min_session_timeout_ms: int = integer(
        "group.min.session.timeout.ms",
        6000,
        minimum=0,
        doc="The shortest session timeout that a member may request, in milliseconds.",
    )
    group_max_session_timeout_ms: int = integer(
        "group.max.session.timeout.ms",
        1_800_000,
        minimum=0,
        doc="The longest session timeout that a member may request, in milliseconds.",
    )
    group_max_size: int = integer(
        "group.max.size", INT_MAX, minimum=1, doc="The largest number of members of a classic group."
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = text_list(
        "group.coordinator.rebalance.protocols",
        ("classic", "consumer"),
        choices=("classic", "consumer"),
        doc="The protocols that groups can use; classic must be one of them.",
    )
    group_consumer_assignors: tuple[str, ...] = text_list(
        "group.consumer.assignors",
        ("uniform", "range"),
        choices=("uniform", "range"),
        doc="The assignors of the consumer protocol; the first is the default for members that name none.",
    )
    group_consumer_migration_policy: str = string(
        "group.consumer.migration.policy",
        "bidirectional",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
        doc="The permitted conversions of a group in use between the classic and the consumer protocol.",
    )
    barnabas_groups_per_principal: int = integer(
        "barnabas.groups.per.principal",
        10_000,
        minimum=1,
        update=Update.CLUSTER_WIDE,
        doc="The largest number of groups that one principal can create at a broker, if there are "
        "ACLs. Super users have no limit. Kafka has no such setting.",
    )
    barnabas_transactional_ids_per_principal: int = integer(
        "barnabas.transactional.ids.per.principal",
        10_000,
        minimum=1,
        update=Update.CLUSTER_WIDE,
        doc="The largest number of transactional ids that one principal can create at a broker, if "
        "there are ACLs. Super users have no limit. Kafka has no such setting.",
    )
    group_consumer_max_size: int = integer(
        "group.consumer.max.size",
        INT_MAX,
        minimum=1,
        doc="The largest number of members of a group of the consumer protocol.",
    )
    group_consumer_heartbeat_interval_ms: int = integer(
        "group.consumer.heartbeat.interval.ms",
        5000,
        minimum=1,
        doc="The interval, in milliseconds, at which members of the consumer protocol send heartbeats.",
    )
    group_consumer_min_heartbeat_interval_ms: int = integer(
        "group.consumer.min.heartbeat.interval.ms",
        5000,
        minimum=1,
        doc="The shortest heartbeat interval that a group can have, in milliseconds.",
    )
    group_consumer_max_heartbeat_interval_ms: int = integer(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        minimum=1,
        doc="The longest heartbeat interval that a group can have, in milliseconds.",
    )
    group_consumer_session_timeout_ms: int = integer(
        "group.consumer.session.timeout.ms",
        45_000,
        minimum=1,
        doc="The time, in milliseconds, without a heartbeat after which a member of the consumer protocol is "
        "removed.",
    )
    group_consumer_min_session_timeout_ms: int = integer(
        "group.consumer.min.session.timeout.ms",
        45_000,
        minimum=1,
        doc="The shortest session timeout that a group of the consumer protocol can have, in milliseconds.",
    )
    group_consumer_max_session_timeout_ms: int = integer(
        "group.consumer.max.session.timeout.ms",
        60_000,
        minimum=1,
        doc="The longest session timeout that a group of the consumer protocol can have, in milliseconds.",
    )
    group_consumer_regex_refresh_interval_ms: int = integer(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        minimum=10_000,
        doc="The longest time, in milliseconds, until regular expressions of subscriptions are resolved "
        "again.",
    )
    group_share_max_size: int = integer(
        "group.share.max.size",
        200,
        minimum=1,
        maximum=1000,
        doc="The largest number of members of a share group.",
    )
    group_share_heartbeat_interval_ms: int = integer(
        "group.share.heartbeat.interval.ms",
        5000,
        minimum=1,
        doc="The interval, in milliseconds, at which members of share groups send heartbeats.",
    )
    group_share_min_heartbeat_interval_ms: int = integer(
        "group.share.min.heartbeat.interval.ms",
        5000,
        minimum=1,
        doc="The shortest heartbeat interval that a share group can have, in milliseconds.",
    )
    group_share_max_heartbeat_interval_ms: int = integer(
        "group.share.max.heartbeat.interval.ms",
        15_000,
        minimum=1,
        doc="The longest heartbeat interval that a share group can have, in milliseconds.",
    )
    group_share_session_timeout_ms: int = integer(
        "group.share.session.timeout.ms",
        45_000,
        minimum=1,
        doc="The time, in milliseconds, without a heartbeat after which a share group removes a member.",
    )
    group_share_min_session_timeout_ms: int = integer(
        "group.share.min.session.timeout.ms",
        45_000,
        minimum=1,
        doc="The shortest session timeout that a share group can have, in milliseconds.",
    )
    group_share_max_session_timeout_ms: int = integer(
        "group.share.max.session.timeout.ms",
        60_000,
        minimum=1,
        doc="The longest session timeout that a share group can have, in milliseconds.",
    )
    group_share_record_lock_duration_ms: int = integer(
        "group.share.record.lock.duration.ms",
        30_000,
        minimum=1000,
        maximum=3_600_000,
        doc="The time, in milliseconds, after which the lock of a member of a share group on a record ends.",
    )
    group_share_min_record_lock_duration_ms: int = integer(
        "group.share.min.record.lock.duration.ms",
        15_000,
        minimum=1000,
        maximum=30_000,
        doc="The shortest lock of records that a share group can have, in milliseconds.",
    )
    group_share_max_record_lock_duration_ms: int = integer(
        "group.share.max.record.lock.duration.ms",
        60_000,
        minimum=30_000,
        maximum=3_600_000,
        doc="The longest lock of records that a share group can have, in milliseconds.",
    )
    group_share_delivery_count_limit: int = integer(
        "group.share.delivery.count.limit",
        5,
        minimum=2,
        maximum=10,
        doc="The number of deliveries after which a share group gives up a record.",
    )
    group_share_min_delivery_count_limit: int = integer(
        "group.share.min.delivery.count.limit",
        2,
        minimum=2,
        maximum=5,
        doc="The lowest limit of deliveries that a share group can have.",
    )
    group_share_max_delivery_count_limit: int = integer(
        "group.share.max.delivery.count.limit",
        10,
        minimum=5,
        maximum=25,
        doc="The highest limit of deliveries that a share group can have.",
    )
    group_share_partition_max_record_locks: int = integer(
        "group.share.partition.max.record.locks",
        2000,
        minimum=100,
        maximum=10_000,
        doc="The largest number of records of one partition that the members of a share group can have at a "
        "time.",
    )
    group_share_min_partition_max_record_locks: int = integer(
        "group.share.min.partition.max.record.locks",
        100,
        minimum=100,
        maximum=2000,
        doc="The lowest limit of locked records in a partition that a share group can have.",
    )
    group_share_max_partition_max_record_locks: int = integer(
        "group.share.max.partition.max.record.locks",
        4000,
        minimum=2000,
        maximum=10_000,
        doc="The highest limit of locked records in a partition that a share group can have.",
    )
    group_share_max_share_sessions: int = integer(
        "group.share.max.share.sessions",
        2000,
        minimum=1,
        doc="The largest number of share sessions of a broker.",
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = boolean(
        "errors.deadletterqueue.auto.create.topics.enable",
        False,
        update=Update.CLUSTER_WIDE,
        doc="Whether the broker creates a group's dead-letter queue if the topic does not exist.",
    )
    errors_deadletterqueue_topic_name_prefix: str = string(
        "errors.deadletterqueue.topic.name.prefix",
        "dlq.",
        update=Update.CLUSTER_WIDE,
        doc="The prefix that the name of each dead-letter queue must have. If it is empty, the name can "
        "have any prefix.",
    )
    share_coordinator_state_topic_num_partitions: int = integer(
        "share.coordinator.state.topic.num.partitions",
        50,
        minimum=1,
        doc="The number of partitions of __share_group_state; it applies when that topic is created.",
    )
    share_coordinator_state_topic_replication_factor: int | None = short(
        "share.coordinator.state.topic.replication.factor",
        None,
        minimum=1,
        doc="The replicas of __share_group_state. If it is unset, the rule of "
        "offsets.topic.replication.factor applies.",
    )
    share_coordinator_state_topic_min_isr: int | None = short(
        "share.coordinator.state.topic.min.isr",
        None,
        minimum=1,
        doc="The min.insync.replicas of __share_group_state. Unset means 2 with zookeeper.connect, else 1.",
    )
    share_coordinator_state_topic_segment_bytes: int = integer(
        "share.coordinator.state.topic.segment.bytes",
        104_857_600,
        minimum=1,
        doc="The segment size of __share_group_state, in bytes.",
    )
    share_coordinator_state_topic_compression_codec: int = integer(
        "share.coordinator.state.topic.compression.codec",
        0,
        minimum=0,
        maximum=4,
        doc="The compression of __share_group_state: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    )
    share_coordinator_state_topic_prune_interval_ms: int = integer(
        "share.coordinator.state.topic.prune.interval.ms",
        300_000,
        minimum=1,
        doc="The interval, in milliseconds, at which the broker deletes superseded records of "
        "__share_group_state.",
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = integer(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        minimum=0,
        maximum=500,
        doc="The number of updates of a share group's partition between two snapshots of its state.",
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = integer(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        300_000,
        minimum=1,
        doc="The age, in milliseconds, at which the broker repeats a snapshot of a share group's state.",
    )
    share_coordinator_write_timeout_ms: int = integer(
        "share.coordinator.write.timeout.ms",
        5000,
        minimum=1,
        doc="The longest time, in milliseconds, that a write of share groups' state waits for its replicas.",
    )
    offset_metadata_max_bytes: int = integer(
        "offset.metadata.max.bytes",
        4096,
        minimum=0,
        doc="The largest metadata of a committed offset, in bytes.",
    )
    offsets_commit_timeout_ms: int = integer(
        "offsets.commit.timeout.ms",
        5000,
        minimum=1,
        doc="The longest time, in milliseconds, that a commit waits for its replicas.",
    )
    offsets_retention_minutes: int = integer(
        "offsets.retention.minutes",
        10_080,
        minimum=1,
        doc="The time, in minutes, after which the broker deletes the offsets of an empty group.",
    )
    offsets_retention_check_interval_ms: int = long(
        "offsets.retention.check.interval.ms",
        600_000,
        minimum=1,
        doc="The interval, in milliseconds, at which the broker deletes expired committed offsets.",
    )
    offsets_topic_num_partitions: int = integer(
        "offsets.topic.num.partitions",
        50,
        minimum=1,
        doc="The number of partitions of __consumer_offsets; it applies when that topic is created.",
    )
    offsets_topic_replication_factor: int | None = short(
        "offsets.topic.replication.factor",
        None,
        minimum=1,
        doc="The replicas of __consumer_offsets. Unset means 3 with zookeeper.connect, else 1. While "
        "fewer brokers run, the topic has one replica for each, and the controller adds the "
        "others when more brokers join.",
    )
    offsets_topic_segment_bytes: int = integer(
        "offsets.topic.segment.bytes",
        104_857_600,
        minimum=1,
        doc="The segment size of __consumer_offsets, in bytes.",
    )

    # --- transactions ---
    transaction_max_timeout_ms: int = integer(
        "transaction.max.timeout.ms",
        900_000,
        minimum=1,
        doc="The longest transaction.timeout.ms that a producer may request.",
    )
    transactional_id_expiration_ms: int = integer(
        "transactional.id.expiration.ms",
        604_800_000,
        minimum=1,
        doc="The time, in milliseconds, after which the coordinator deletes an unused transactional id.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        minimum=1,
        doc="The interval, in milliseconds, at which the coordinator aborts transactions that have exceeded "
        "their timeout.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        minimum=1,
        doc="The interval, in milliseconds, at which the coordinator deletes expired transactional ids.",
    )
    transaction_partition_verification_enable: bool = boolean(
        "transaction.partition.verification.enable",
        True,
        update=Update.CLUSTER_WIDE,
        doc="If true, the broker checks that a write belongs to an open transaction before it accepts "
        "the write (KIP-890).",
    )
    add_partitions_to_txn_retry_backoff_ms: int = integer(
        "add.partitions.to.txn.retry.backoff.ms",
        20,
        minimum=1,
        doc="The time, in milliseconds, after which a write asks again whether the previous transaction has "
        "ended.",
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = integer(
        "add.partitions.to.txn.retry.backoff.max.ms",
        100,
        minimum=0,
        doc="The longest time that a write waits for the end of the previous transaction, in milliseconds.",
    )
    transaction_state_log_num_partitions: int = integer(
        "transaction.state.log.num.partitions",
        50,
        minimum=1,
        doc="The number of partitions of __transaction_state; it applies when that topic is created.",
    )
    transaction_state_log_replication_factor: int | None = short(
        "transaction.state.log.replication.factor",
        None,
        minimum=1,
        doc="The replicas of __transaction_state. If it is unset, the rule of "
        "offsets.topic.replication.factor applies.",
    )
    transaction_state_log_min_isr: int | None = integer(
        "transaction.state.log.min.isr",
        None,
        minimum=1,
        doc="The min.insync.replicas of __transaction_state. Unset means 2 with zookeeper.connect, else 1.",
    )
    transaction_state_log_segment_bytes: int = integer(
        "transaction.state.log.segment.bytes",
        104_857_600,
        minimum=1,
        doc="The segment size of __transaction_state, in bytes.",
    )
    request_timeout_ms: int = integer(
        "request.timeout.ms",
        30_000,
        minimum=1,
        doc="The time, in milliseconds, that a broker waits for the response of another broker.",
    )


def replicated_settings(brokers: int) -> dict[str, str]:
    """Return settings for three replicas of every topic, of which two must be in sync.

    With one or two `brokers`, every topic has one replica on each of them, and all replicas must be in sync.
    """
    replicas, in_sync = str(min(3, brokers)), str(min(2, brokers))
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
    }
