"""Private temporary database servers on loopback, for the demo and the tests, which end with this process."""

from pidts.sandbox.mysql import start_mariadb, start_mysql56, start_mysql97
from pidts.sandbox.postgres import start_postgres
from pidts.sandbox.programs import installed
from pidts.sandbox.server import Server
from pidts.sandbox.tidb import start_tidb
