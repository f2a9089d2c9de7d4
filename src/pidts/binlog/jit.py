"""Compiles functions that work on raw memory; the only file that imports the compiler.

A function with `@jit` is compiled to machine code when it is first called. The machine code is kept on disk for the
next process.

Only compiled functions can call the functions below. These read and write memory by address, unaligned and in the
machine's (little-endian) byte order. Nothing checks an address, and a length in the log may be wrong. So every caller
first makes sure that the address is within its own buffer.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import numba
import pyarrow as pa
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import event
from numba.core.caching import CompileResultCacheImpl, FunctionCache, InTreeCacheLocator, NullCache, _Cache
from numba.core.ccallback import CFunc
from numba.core.cgutils import unpack_tuple
from numba.extending import intrinsic

from pidts.binlog.machine_code import cache_folder

if sys.byteorder != "little":
    raise ImportError("this machine is big-endian, and PiDTS needs a little-endian one")

F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """Compiles a function; the interpreter's lock is released while it runs."""
    return _kept(function, forceinline=False)


def inline(function: F) -> F:
    """Compiles a small function, which is inlined into its callers."""
    return _kept(function, forceinline=True)


def entry(function: Callable[..., int]) -> Any:
    """Compiles a function that takes and returns numbers, once for all callers.

    A `jit` function is compiled again as a part of each of its callers, and of their callers, which takes time.
    Compiled callers of an `entry` only need its `address`, for `invoke`. Plain callers use its `ctypes`.
    """
    number: Any = types.int64
    arguments = (number,) * function.__code__.co_argcount
    done = _Entry(function, (arguments, number), locals={}, options={"error_model": "numpy"})
    done.compile()
    return done


def _kept(function: F, **options: Any) -> F:
    done: Any = numba.njit(nogil=True, error_model="numpy", **options)(function)
    done._cache = _cache(function)  # noqa: SLF001 - Numba has no other way to choose where code is kept
    compiled: F = done
    return compiled


class _Place(InTreeCacheLocator):
    """The place of a function's machine code: in `cache_folder`, in a folder for the function's package.

    Numba's own folders depend on the absolute path of the file, so a copy of the program would compile again. Numba's
    folders must also be writable, even if all functions are compiled already.
    """

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        super().__init__(function, file)  # type: ignore[no-untyped-call]
        self._cache_path = str(cache_folder() / function.__module__.rpartition(".")[0])

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Place:
        return cls(py_func, py_file)


class _PlaceOfCode(CompileResultCacheImpl):
    _locator_classes = [_Place]  # noqa: RUF012 - as Numba declares it


class _MachineCode(FunctionCache):
    """Keeps the machine code of a function on disk. If this is not possible, each process compiles for itself."""

    _impl_class = _PlaceOfCode

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Returns the kept code; None if there is none, or if it cannot be read, for example after a power failure."""
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001 - a damaged file can raise any error
            with suppress(OSError):
                self.flush()  # type: ignore[no-untyped-call]
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keeps the code, unless the folder cannot be written or the disk is full."""
        with suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


class _Entry(CFunc):
    """A function with an address, whose machine code is kept on disk."""

    def __init__(self, function: Callable[..., int], *about: Any, **options: Any) -> None:
        super().__init__(function, *about, **options)
        self._cache = _cache(function)


def _cache(function: Callable[..., Any]) -> _Cache:
    """Returns the cache of a function's code, or an empty cache if NUMBA_CACHE_LOCATOR_CLASSES allows no folder."""
    try:
        return _MachineCode(function)
    except RuntimeError:
        return NullCache()


class _OpenCompilations(event.Listener):
    """Counts the compilations that are under way. A compilation may contain others."""

    def __init__(self) -> None:
        self.count = 0

    def on_start(self, event: Any) -> None:  # noqa: ARG002 - as Numba calls it
        """Is called before a compilation, under the lock of Numba's compiler."""
        self.count += 1

    def on_end(self, event: Any) -> None:  # noqa: ARG002 - as Numba calls it
        """Is called after a compilation, even if it has failed."""
        self.count -= 1


_open_compilations = _OpenCompilations()
event.register("numba:compile", _open_compilations)  # type: ignore[no-untyped-call]


def is_compiling() -> bool:
    """Whether this process is compiling a function now; code that is read from disk is not compiled."""
    return _open_compilations.count > 0


def _loader(kind: types.Type, bits: int) -> Any:
    @intrinsic
    def load(_context: Any, _address: Any) -> Any:
        def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            value = builder.load(pointer, align=1)
            wide = ir.IntType(64)
            return value if bits == 64 else builder.zext(value, wide)

        return kind(types.int64), generate

    return load


def _storer(bits: int) -> Any:
    @intrinsic
    def store(_context: Any, _address: Any, _value: Any) -> Any:
        def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
            value = arguments[1] if bits == 64 else builder.trunc(arguments[1], ir.IntType(bits))
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            builder.store(value, pointer, align=1)
            return ir.Constant(ir.IntType(8), 0)

        return types.uint8(types.int64, types.int64), generate

    return store


load8 = _loader(types.int64, 8)
"""Returns the byte at an address, 0 to 255."""
load16 = _loader(types.int64, 16)
load32 = _loader(types.int64, 32)
load64 = _loader(types.int64, 64)
"""Returns eight bytes as a signed number."""
store8 = _storer(8)
store16 = _storer(16)
store32 = _storer(32)
store64 = _storer(64)


def _invoke(_context: Any, _address: Any, *_arguments: Any) -> Any:
    count = len(_arguments)
    packed: Any = types.StarArgTuple

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        function = builder.inttoptr(arguments[0], ir.FunctionType(word, [word] * count).as_pointer())
        values = unpack_tuple(builder, arguments[1], count)  # type: ignore[no-untyped-call]
        return builder.call(function, values)

    return types.int64(types.int64, packed.from_types([types.int64] * count)), generate


invoke: Any = intrinsic(_invoke)
"""Calls the `entry` at an address with these numbers."""


def _as_double(_context: Any, _bits: Any) -> Any:
    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


as_double: Any = intrinsic(_as_double)
"""Returns the double with these 64 bits."""


def _copy(_context: Any, _target: Any, _source: Any, _size: Any) -> Any:
    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        target, source = (builder.inttoptr(address, byte) for address in arguments[:2])
        function = builder.module.declare_intrinsic("llvm.memcpy", [byte, byte, ir.IntType(64)])
        builder.call(function, [target, source, arguments[2], ir.Constant(ir.IntType(1), 0)])
        return ir.Constant(ir.IntType(8), 0)

    return types.uint8(types.int64, types.int64, types.int64), generate


copy: Any = intrinsic(_copy)
"""`copy(target, source, size)`: copies bytes from one address to another; the two areas must not overlap."""


def address(buffer: Any) -> int:
    """Returns the address of a buffer (bytes, memoryview, mmap, array), which must exist while the address is used."""
    found: int = pa.py_buffer(buffer).address if len(buffer) else 0
    return found


CARRYLESS = platform.machine() in {"x86_64", "AMD64"} and bool(get_host_cpu_features().get("pclmul"))
"""Whether this processor can multiply without carries."""


def _carryless(_context: Any, _left: Any, _right: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pair, place = ir.VectorType(ir.IntType(64), 2), ir.IntType(32)
        left, right = (builder.insert_element(ir.Constant(pair, None), value, place(0)) for value in arguments)
        kind = ir.FunctionType(pair, [pair, pair, ir.IntType(8)])
        function = builder.module.globals.get("llvm.x86.pclmulqdq") or ir.Function(
            builder.module, kind, "llvm.x86.pclmulqdq"
        )
        product = builder.call(function, [left, right, ir.IntType(8)(0)])
        halves = [builder.extract_element(product, place(half)) for half in (0, 1)]
        return context.make_tuple(builder, signature.return_type, halves)

    pair_of: Any = types.UniTuple
    return pair_of(types.int64, 2)(types.int64, types.int64), generate


carryless: Any = intrinsic(_carryless)
"""Returns the product of two 64-bit polynomials over GF(2), as its low and its high half; only if `CARRYLESS`."""
