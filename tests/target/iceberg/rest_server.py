"""Iceberg's own REST catalog, from the jars of its tests and the web server of PySpark.

`rest_server.py PORT FOLDER JARS` serves the catalog on the loopback interface until its stdin is closed. Its tables are
in an SQLite database in the folder.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from pidts.spark.class_data import java_options


def main(port: int, folder: Path, jars: Path) -> None:
    """Serves the catalog until stdin is closed."""
    options = shlex.quote(f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {java_options()}")
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--driver-class-path {shlex.quote(str(jars))}/* --driver-java-options {options} pyspark-shell"
    )
    gateway = launch_gateway(SparkConf(loadDefaults=False), {"stdout": subprocess.DEVNULL})
    jvm = gateway.jvm
    iceberg, jetty = jvm.org.apache.iceberg, jvm.org.sparkproject.jetty
    catalog = iceberg.jdbc.JdbcCatalog()
    catalog.setConf(jvm.org.apache.hadoop.conf.Configuration())
    properties = {
        "uri": f"jdbc:sqlite:{folder}/rest.db",
        "warehouse": str(folder / "rest"),
        "jdbc.schema-version": "V1",
        "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
    }
    catalog.initialize("rest", properties)
    servlet = iceberg.rest.RESTCatalogServlet(iceberg.rest.RESTCatalogAdapter(catalog))
    server = jetty.server.Server(jvm.java.net.InetSocketAddress("127.0.0.1", port))
    context = jetty.ee10.servlet.ServletContextHandler()
    context.addServlet(jetty.ee10.servlet.ServletHolder(servlet), "/*")
    server.setHandler(context)
    server.start()
    sys.stdin.read()
    server.stop()
    gateway.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
