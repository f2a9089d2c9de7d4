"""A Hive metastore from the jars that PySpark brings, which listens on loopback alone.

The metastore's own program listens on all addresses. `metastore_server.py PORT FOLDER` serves until its input ends.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway


def main(port: int, folder: Path) -> None:
    """Serves until the input ends."""
    gateway = launch_gateway(SparkConf(loadDefaults=False), {"stdout": subprocess.DEVNULL})
    jvm = gateway.jvm
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore_db;create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.disallow.incompatible.col.type.changes": "false",
        "hive.metastore.warehouse.dir": str(folder / "hive"),
    }
    hive = jvm.org.apache.hadoop.hive
    conf = hive.conf.HiveConf()
    for name, value in settings.items():
        conf.set(name, value)
    store = hive.metastore.HiveMetaStore
    base = getattr(hive.metastore, "HiveMetaStore$HMSHandler")("metastore", conf, False)
    handler = store.newRetryingHMSHandler(base, conf)
    thrift = jvm.org.apache.thrift
    processor = getattr(hive.metastore.api, "ThriftHiveMetastore$Processor")(handler)
    loopback = jvm.java.net.InetSocketAddress("127.0.0.1", port)
    socket = thrift.transport.TServerSocket(loopback)
    args = getattr(thrift.server, "TThreadPoolServer$Args")(socket)
    args.processor(processor)
    server = thrift.server.TThreadPoolServer(args)
    threading.Thread(target=server.serve, daemon=True).start()
    sys.stdin.read()
    gateway.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
