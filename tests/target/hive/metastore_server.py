"""A Hive metastore from the jars of PySpark, which listens only on loopback.

The metastore's own program listens on all addresses. `metastore_server.py PORT FOLDER` serves only on loopback, until
its stdin is closed.

A metastore creates the folders of its tables. If they are in the bucket `BUCKET` of an object store, it creates them on
this machine instead: the folders are empty, and a store needs none.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
from pathlib import Path

from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from pidts.spark.class_data import java_options

BUCKET = "lake-of-hive"
_VIEW = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"


def main(port: int, folder: Path, jars: str = "") -> None:
    """Serves the metastore until stdin is closed."""
    options = shlex.quote(f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {java_options()}")
    more = f"--driver-class-path {shlex.quote(jars)}/*" if jars else ""
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"{more} --driver-java-options {options} pyspark-shell"
    gateway = launch_gateway(SparkConf(loadDefaults=False), {"stdout": subprocess.DEVNULL})
    jvm = gateway.jvm
    # The metastore's tables end with the tests, so nothing has to be on the disk.
    jvm.java.lang.System.setProperty("derby.system.durability", "test")
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore_db;create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.disallow.incompatible.col.type.changes": "false",
        "hive.metastore.warehouse.dir": str(folder / "hive"),
    }
    if jars:
        settings |= {"fs.s3a.endpoint": os.environ["AWS_ENDPOINT_URL"], "fs.s3a.path.style.access": "true"}
    else:
        settings |= {"fs.s3a.impl": _VIEW, f"fs.viewfs.mounttable.{BUCKET}.linkFallback": f"file://{folder}/s3a"}
        (folder / "s3a").mkdir()
    hive = jvm.org.apache.hadoop.hive
    conf = hive.conf.HiveConf()
    for name, value in settings.items():
        conf.set(name, value)
    # The metastore looks up the groups of the account. The account need not exist on this machine.
    user = os.environ.get("HADOOP_USER_NAME", "pidts")
    conf.set("hadoop.user.group.static.mapping.overrides", f"{user}={user}")
    jvm.org.apache.hadoop.security.UserGroupInformation.setConfiguration(conf)
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
    main(int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
