"""Settings of Spark for tests of a few rows."""

FOR_A_FEW_ROWS = {
    # Two hundred tasks for every shuffle, and compiled Java for every query, are meant for more rows.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
