"""An error of PiDTS crosses Spark as text in a traceback, and becomes the same error again."""

import pickle
import traceback

from py4j.protocol import Py4JError
from pyspark.errors import PythonException

from pidts.model import Halted, Transient, Where
from pidts.spark.failures import carried, restored


def through_spark(error: Exception) -> Exception:
    """Returns the error as a Python worker reports it: the whole traceback, with the source lines that raised."""

    def task():
        raise error
        yield

    try:
        with carried():
            list(task())
    except Exception:  # noqa: BLE001 - whatever was thrown is what is looked at
        text = traceback.format_exc()
    jvm = "\n\n\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1)"
    return restored(PythonException(f"\n  An exception was thrown from the Python worker:\n{text}{jvm}"))


def test_an_error_of_pidts_passes_unchanged():
    where = Where(table="a.b", key="1")
    error = Halted("nul-in-text", "column v contains NUL", where=where, todo="Choose a policy", values=("v=1", "v=2"))
    found = through_spark(error)
    assert isinstance(found, Halted)
    assert (found.to_json(), found.values) == (error.to_json(), error.values)
    assert pickle.loads(pickle.dumps(error)).values == error.values


def test_errors_that_may_be_retried_stay_so():
    assert isinstance(through_spark(Transient("target-lost", "gone")), Transient)


def test_a_fault_names_itself():
    found = through_spark(KeyError("the key"))
    assert isinstance(found, Transient)
    assert "KeyError: 'the key'" in found.what


def test_errors_that_are_not_sparks_stay_unchanged():
    fault = ValueError("x")
    assert restored(fault) is fault


def test_a_jvm_that_gives_no_answer_has_died():
    found = restored(Py4JError("An error occurred while calling None.java.util.HashMap"))
    assert isinstance(found, Transient)
    assert found.code == "spark-died"
    assert "java" not in found.what
    asked_wrongly = restored(Py4JError("An error occurred while calling o1.x. Trace:\npy4j.Py4JException: no x"))
    assert asked_wrongly.code == "spark-failed"
