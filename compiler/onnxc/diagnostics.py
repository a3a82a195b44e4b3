"""What can go wrong, as data: each kind of fault has a number that never changes.

The hundreds say where to look: 00 onnxc itself, 01 the file, 02 the graph, 03 a node against its
schema, 04 attributes and shapes, 05 what is not supported, 06 sizes and fixed inputs, 07 the
command line and calls from Python, 08 the C compiler and output files, 09 runs and verification.
A number is never given to another kind, not even when its own has gone; diagnostics.toml says of
each what it means and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path


class Kind(Enum):
    """A kind of fault, as a user sees it."""

    INTERNAL_ERROR = 1
    OUT_OF_MEMORY = 2

    NO_SUCH_FILE = 101
    UNREADABLE_FILE = 102
    EMPTY_FILE = 103
    NOT_A_MODEL = 104
    DAMAGED_FILE = 105
    FILE_TOO_LARGE = 106
    GIT_LFS_POINTER = 107
    INCOMPLETE_MODEL = 108
    IR_VERSION = 109
    OPSET_VERSION = 110
    OPSET_MISSING = 111
    NESTING_TOO_DEEP = 112
    NOT_REPRESENTABLE = 113
    EXTERNAL_DATA = 114
    EXTERNAL_DATA_OUTSIDE = 115
    TENSOR_DATA = 116
    SPARSE_TENSOR = 117
    FUNCTION_DEFINITION = 118
    FUNCTION_CALL = 119
    FUNCTIONS_TOO_LARGE = 120
    ATTRIBUTE_ENCODING = 121

    NO_OUTPUTS = 201
    NAME_MISSING = 202
    NAME_TAKEN = 203
    VALUE_UNDEFINED = 204
    NODES_UNSORTED = 205
    CYCLE = 206
    OUTPUT_UNMADE = 207
    DECLARATION_CONFLICT = 208
    TYPE_MISSING = 209
    NEGATIVE_DIMENSION = 210
    TENSOR_TOO_LARGE = 211
    RANK_TOO_LARGE = 212
    NOT_A_TENSOR = 213
    ELEMENT_TYPE = 214

    UNKNOWN_OPERATOR = 301
    CUSTOM_DOMAIN = 302
    OPERATOR_TOO_NEW = 303
    OPERATOR_DEPRECATED = 304
    OPERAND_COUNT = 305
    OPERAND_LEFT_OUT = 306
    UNKNOWN_ATTRIBUTE = 307
    ATTRIBUTE_TYPE = 308
    ATTRIBUTE_MISSING = 309
    OPERAND_TYPE = 310
    OPERAND_TYPES_DIFFER = 311
    DECLARED_TYPE = 312
    DECLARED_SHAPE = 313
    INFERENCE_FAILED = 314

    AXIS_OUT_OF_RANGE = 401
    AXIS_TWICE = 402
    SHAPES_DO_NOT_BROADCAST = 403
    ATTRIBUTE_VALUE = 404
    ATTRIBUTES_CONFLICT = 405
    OPERAND_RANK = 406
    OPERAND_SHAPE = 407
    ENTRY_COUNT = 408
    RESHAPE = 409
    CHANNELS_AND_GROUPS = 410
    WINDOW_TOO_LARGE = 411
    INNER_DIMENSIONS = 412
    EINSUM_EQUATION = 413
    PERMUTATION = 414
    INDICES_SHAPE = 415
    NO_ELEMENTS = 416
    BLOCKS = 417
    QUANTIZATION_PARAMETER = 418
    NOT_ONE_ELEMENT = 419
    RESULT_SHAPE = 420
    NUMBER_OUT_OF_RANGE = 421
    PADS = 422
    ATTENTION_HEADS = 423
    SPLIT_SIZES = 424
    RECURRENT_LAYER = 425

    OPERATOR_NOT_SUPPORTED = 501
    CAST_NOT_SUPPORTED = 502
    PART_NOT_SUPPORTED = 503
    SHAPE_UNKNOWN = 504
    CONSTANT_REQUIRED = 505
    SIZE_FROM_DATA = 506
    OLD_VERSION = 507
    TRAINING_MODE = 508
    TYPE_NOT_SUPPORTED = 509
    MEMORY_TOO_LARGE = 510
    LARGE_WORKSPACE = 511
    RUN_TIME_BRANCH = 512

    OPEN_DIMENSIONS = 601
    UNKNOWN_RANK = 602
    UNKNOWN_DIMENSION = 603
    DIMENSION_CONFLICT = 604
    DIMENSION_SIZE = 605
    DIMENSION_RANGE = 606
    UNKNOWN_INPUT = 607
    FIX_VALUE = 608
    FIX_OPEN_SHAPE = 609
    FIX_TYPE = 610
    FIX_CONFLICT = 611

    COMMAND_LINE = 701
    UNKNOWN_VERB = 702
    OPTIONS_CONFLICT = 703
    OUTPUT_NAME = 704
    MODEL_NAME = 705
    LICENSE = 706
    UNKNOWN_PASS = 707
    UNKNOWN_OPERATOR_PAGE = 708
    UNKNOWN_CODE = 709
    ARGUMENT = 710

    NO_COMPILER = 801
    COMPILER_FAILED = 802
    LIBRARY_UNUSABLE = 803
    CACHE_FOLDER = 804
    CANNOT_WRITE = 805
    FILE_NOT_OURS = 806
    STANDARD_OUTPUT = 807
    SOURCE_CHANGED = 808
    COMPILER_OPTIONS = 809
    SYSTEM_ERROR = 810

    INPUT_ARRAYS = 901
    ARRAYS_OVERLAP = 902
    RUN_STATUS = 903
    CRASH = 904
    INPUT_FILE = 905
    WRONG_SOURCE = 906
    WRONG_WEIGHTS = 907

    @property
    def code(self) -> str:
        """As in "ONNXC0403"."""
        return f"ONNXC{self.value:04}"


@dataclass(frozen=True)
class Text:
    """What `onnxc explain` says of a kind: what it means, and what the user can do."""

    meaning: str
    remedy: str


@cache
def texts() -> Mapping[Kind, Text]:
    """Of every kind, in the order of their numbers."""
    import tomllib  # only explanations need it

    path = Path(__file__).with_name("diagnostics.toml")
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    return {kind: Text(**found[kind.name]) for kind in Kind}
