"""The configuration file and the command line of every process of a cluster. Text only, nothing is started here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pulsar_fleet.cluster.versions import version_numbers
from pulsar_sandbox.sandbox.layout import BrokerLayout, ClusterLayout

_BROKER = "org.apache.pulsar.broker"

DISK_THRESHOLD = "0.99"

# Small enough for a laptop, and a bookie that does not wait for the disk. The rest are Pulsar's defaults.
COMMON: Mapping[str, str] = {
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "dbStorage_writeCacheMaxSizeMb": "16",
    "dbStorage_readAheadCacheMaxSizeMb": "16",
    # As Pulsar's own bookkeeper.conf: BookKeeper's default is too small for a message of the largest size.
    "nettyMaxFrameSizeBytes": "5253120",
    "journalSyncData": "false",
    "diskUsageThreshold": DISK_THRESHOLD,
    "diskUsageWarnThreshold": DISK_THRESHOLD,
    "allowLoopback": "true",
    "allowEphemeralPorts": "true",
    "managedLedgerCacheSizeMB": "16",
    "numIOThreads": "2",
    "numHttpServerThreads": "4",
    "numExecutorThreadPoolSize": "2",
    "numOrderedExecutorThreads": "2",
    "brokerShutdownTimeoutMs": "0",
    "webSocketServiceEnabled": "false",
    "functionsWorkerEnabled": "false",
    "clusterMigrationCheckDurationSeconds": "1",
    "bookkeeperExplicitLacIntervalInMills": "500",
    "forceDeleteNamespaceAllowed": "true",
    "forceDeleteTenantAllowed": "true",
    # Pulsar 3.0 does not start where the network card does not tell its speed, as virtual ones do not.
    "loadBalancerOverrideBrokerNicSpeedGbps": "1",
}

JVM_FLAGS = (
    "-Xms128m",
    "-Xmx384m",
    "-XX:MaxDirectMemorySize=256m",
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    # The first compiler only: ready in half the CPU time and 30 MB smaller, for a lower peak throughput.
    "-XX:TieredStopAtLevel=1",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.util.zip=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.platform=ALL-UNNAMED",
    "--add-opens=java.base/sun.net=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.management/sun.management=ALL-UNNAMED",
    "--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED",
    "--enable-native-access=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dlog4j2.is.webapp=false",
    "-Dbookkeeper.metadata.bookie.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver",
    "-Dbookkeeper.metadata.client.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver",
)


def security_settings(broker: BrokerLayout, security: Path) -> dict[str, str]:
    """Token and client-certificate authentication, authorization and TLS, with the files of `security.create`.

    A broker calls itself and its peers: without `brokerClient*` credentials almost nothing works.
    """
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationProviders": f"{_BROKER}.authentication.AuthenticationProviderToken,"
        f"{_BROKER}.authentication.AuthenticationProviderTls",
        "superUserRoles": "admin,broker",
        "tokenSecretKey": (security / "secret.key").as_uri(),
        "brokerServicePortTls": str(broker.service_port_tls),
        "webServicePortTls": str(broker.web_port_tls),
        "tlsCertificateFilePath": str(security / "broker.cert.pem"),
        "tlsKeyFilePath": str(security / "broker.key.pem"),
        "tlsTrustCertsFilePath": str(security / "ca.cert.pem"),
        "tlsRequireTrustedClientCertOnConnect": "false",
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": (security / "broker.jwt").as_uri(),
        "brokerClientTlsEnabled": "true",
        "brokerClientTrustCertsFilePath": str(security / "ca.cert.pem"),
        # With plain and TLS web ports open, four threads are too few: the broker does not start.
        "numHttpServerThreads": "8",
    }


def broker_settings(cluster: ClusterLayout, broker: BrokerLayout, security: Path | None) -> dict[str, str]:
    """Every key of one broker's configuration file; the caller's own settings win over all of them."""
    settings = {
        **COMMON,
        "clusterName": cluster.name,
        "brokerServicePort": str(broker.service_port),
        "webServicePort": str(broker.web_port),
        "advertisedAddress": broker.host,
        "bindAddress": "127.0.0.1" if broker.host == "localhost" else broker.host,
        "loadManagerClassName": f"{_BROKER}.loadbalance.NoopLoadManager",
    }
    if cluster.zookeeper_port is not None:
        store = f"zk:127.0.0.1:{cluster.zookeeper_port}"
        settings |= {
            "metadataStoreUrl": store,
            "configurationMetadataStoreUrl": cluster.configuration_store or store,
            "metadataStoreSessionTimeoutMillis": "10000",
            "loadManagerClassName": f"{_BROKER}.loadbalance.impl.ModularLoadManagerImpl",
        }
    if security is not None:
        settings |= security_settings(broker, security)
    return settings | dict(cluster.settings)


def render(settings: Mapping[str, str]) -> str:
    """Render a configuration file."""
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def java_command(java: str, *, java_major: int, jars: Path, log: Path, arguments: list[str]) -> list[str]:
    """Build the command of one JVM; `arguments` begin with the main class."""
    logging = [f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.xml').as_uri()}", f"-Dsandbox.log={log}"]
    unsafe = ["--sun-misc-unsafe-memory-access=allow"] if java_major >= 23 else []
    return [java, *JVM_FLAGS, *unsafe, *logging, "-cp", f"{jars}/*", *arguments]


def standalone_arguments(cluster: ClusterLayout) -> list[str]:
    """Main class and options of the process with metadata store and bookie, relative to its working directory.

    With ZooKeeper it runs no broker: one of this main class answers every lookup with "through me", so clients would
    never reach the others.
    """
    arguments = ["org.apache.pulsar.PulsarStandaloneStarter", "-c", "broker.conf", "-nfw", "-nss"]
    arguments += ["--bookkeeper-dir", "bookie", "--num-bookies", "1"]
    # Since 5.0 the starter has no such option.
    if version_numbers(cluster.version) < (5,):
        arguments += ["--bookkeeper-port", str(cluster.bookie_port)]
    if cluster.zookeeper_port is None:
        return [*arguments, "--metadata-dir", "metadata"]
    return [*arguments, "--no-broker", "--zookeeper-dir", "zookeeper", "--zookeeper-port", str(cluster.zookeeper_port)]


def broker_arguments() -> list[str]:
    """Main class and options of a broker that uses ZooKeeper."""
    return ["org.apache.pulsar.PulsarBrokerStarter", "-c", "broker.conf"]
