"""Names: from ONNX's free text to C identifiers, and to text that may stand in a C comment.

An ONNX name is any text: it may be empty, a C keyword, a kilobyte long or not even UTF-8.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from typing import Final

from onnxc.diagnostics import Kind
from onnxc.errors import UsageError

LONGEST_IDENTIFIER: Final = 48
LONGEST_COMMENT: Final = 64

_KEYWORDS: Final = """
    alignas alignof and and_eq asm atomic_cancel atomic_commit atomic_noexcept auto bitand bitor
    bool break case catch char char8_t char16_t char32_t class co_await co_return co_yield compl
    concept const const_cast consteval constexpr constinit continue contract_assert decltype
    default delete do double dynamic_cast else enum explicit export extern false float for friend
    goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq
    private protected public reflexpr register reinterpret_cast requires restrict return short
    signed sizeof static static_assert static_cast struct switch synchronized template this
    thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using
    virtual void volatile wchar_t while xor xor_eq
"""

# Macros and types of standard headers, and macros that compilers, Windows, X11 and Arduino define
# in the user's own name space.
_MACROS_AND_TYPES: Final = """
    AVR BUFSIZ CHAR_BIT CLOCKS_PER_SEC CONST DEFAULT DELETE DOMAIN EOF ERROR EXIT_FAILURE
    EXIT_SUCCESS EXTERNAL FALSE FILE FILENAME_MAX FOPEN_MAX F_OK False HIGH HUGE HUGE_VAL
    HUGE_VALF HUGE_VALL I IN INFINITY INPUT INPUT_PULLUP INTERNAL LOW L_tmpnam MATH_ERREXCEPT
    MATH_ERRNO MB_CUR_MAX MB_LEN_MAX NAN NDEBUG NSIG NULL None OPTIONAL OUT OUTPUT OVERFLOW PLOSS
    PPC RAND_MAX R_OK SEEK_CUR SEEK_END SEEK_SET SING STDERR_FILENO STDIN_FILENO STDOUT_FILENO
    STRICT Status Success TLOSS TMP_MAX TRUE True UNDERFLOW VOID WEOF W_OK X_OK alloca arm assert
    bit bool boolean byte cdecl complex div_t double_t errno far fenv_t fexcept_t float_t fpos_t
    hpux huge hyper i386 imaginary interface jmp_buf ldiv_t linux lldiv_t math_errhandling max
    max_align_t mbstate_t min mips near noreturn nullptr_t offsetof pascal pixel ptrdiff_t rsize_t
    sgi sig_atomic_t size_t small sparc ssize_t stderr stdin stdout sun time_t tm unix va_arg
    va_copy va_end va_list va_start vax vector wchar_t wctrans_t wctype_t wint_t word
"""

_LIBRARY: Final = """
    abort abs access acct alarm asctime atexit atof atoi atol atoll basename bcmp bcopy
    bind brk bsearch btowc bzero calloc clearerr clock close connect constrain ctime daemon
    degrees difftime dirname div drem dup err exit fclose feof ferror fflush ffs fgetc fgetpos
    fgets finite fopen fork fpclassify fprintf fputc fputs fread free freopen fscanf fseek fsetpos
    ftell fwrite getc getchar getenv gets gmtime imaxabs imaxdiv index isalnum isalpha isascii
    isblank iscntrl isdigit isfinite isgraph isgreater isgreaterequal isinf isless islessequal
    islessgreater islower isnan isnormal isprint ispunct isspace isunordered isupper isxdigit kill
    labs ldiv link listen llabs lldiv localeconv localtime longjmp loop main malloc mblen
    mbstowcs mbtowc memccpy memchr memcmp memcpy memmove memset mktime nice open optarg
    optind pause perror pipe printf profil putc putchar puts qsort radians raise rand random read
    realloc recv reject remove rename rewind rindex sbrk scanf select send setbuf setjmp setlocale
    setup setvbuf siglongjmp sigmask signal signbit sigsetjmp sleep snprintf socket sprintf sq
    srand sscanf stat strcat strchr strcmp strcoll strcpy strcspn strdup strerror strftime
    strlen strncat strncmp strncpy strpbrk strrchr strspn strstr strtod strtof strtok strtol
    strtold strtoll strtoul strtoull strxfrm sync system time tmpfile tmpnam toascii tolower
    toupper truncate umask ungetc unlink vfork vfprintf vfscanf vprintf vscanf vsnprintf vsprintf
    vsscanf wait warn wcstombs wctomb write yield
"""

# Each exists for float and long double too, with the suffix f or l.
_LIBM: Final = """
    acos acosh asin asinh atan atan2 atanh cabs cacos cacosh carg casin casinh catan catanh cbrt
    ccos ccosh ceil cexp cimag clog conj copysign cos cosh cpow cproj creal csin csinh csqrt ctan
    ctanh erf erfc exp exp10 exp2 expm1 fabs fdim floor fma fmax fmin fmod frexp gamma hypot ilogb
    j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint
    nextafter nexttoward pow pow10 remainder remquo rint round scalb scalbln scalbn significand
    sin sincos sinh sqrt tan tanh tgamma trunc y0 y1 yn
"""

# What the generated functions use themselves, in every model.
_OWN: Final = "workspace status"

_RESERVED_WORDS: Final = frozenset(
    f"{_KEYWORDS} {_MACROS_AND_TYPES} {_LIBRARY} {_LIBM} {_OWN}".split()
) | {name + suffix for name in _LIBM.split() for suffix in "fl"}

_RESERVED_FAMILIES: Final = re.compile(
    r"""
      u?int(_fast|_least)?\d{1,3}_t | u?int(ptr|max)_t
    | U?INT(_FAST|_LEAST)?\d{1,3}_(MIN|MAX|WIDTH|C) | U?INT(PTR|MAX)_(MIN|MAX|WIDTH|C)
    | (CHAR|SCHAR|UCHAR|SHRT|USHRT|INT|UINT|LONG|ULONG|LLONG|ULLONG|SIZE|PTRDIFF|WCHAR|WINT
       |SIG_ATOMIC|BOOL)_(MIN|MAX|WIDTH)
    | (PRI|SCN)[diouxX](8|16|32|64|FAST\d\d?|LEAST\d\d?|MAX|PTR)
    | (FLT|DBL|LDBL|FLT\d+|DEC|DECIMAL|FE|FP|LC)_[A-Z][A-Z0-9_]{1,20}
    | M_(1_|2_)?[A-Z][A-Z0-9]{0,8}           # M_PI and relatives
    | SIG_?[A-Z]{2,8}[12]?                   # SIGINT, SIG_DFL, SIGUSR1
    | E[A-Z0-9]{1,20}                        # the standard keeps these for errno.h
    | B[01]{1,8}                             # Arduino's binary numbers
    """,
    re.VERBOSE,
)


def _is_reserved(identifier: str) -> bool:
    """Whether C, C++, their libraries or a common platform may already use the identifier."""
    return identifier in _RESERVED_WORDS or _RESERVED_FAMILIES.fullmatch(identifier) is not None


def _spelled(character: str) -> str:
    if character.isascii():
        return character if character.isalnum() else "_"
    return f"u{ord(character):04x}" if character.isalnum() else "_"


def _shortened(identifier: str) -> str:
    """The identifier itself, or its start and a checksum of the whole."""
    if len(identifier) <= LONGEST_IDENTIFIER:
        return identifier
    checksum = f"_{zlib.crc32(identifier.encode()):08x}"
    return identifier[: LONGEST_IDENTIFIER - len(checksum)].rstrip("_") + checksum


def _words(text: str, letter: str, empty: str) -> str:
    """The text in letters, digits and single underscores; `letter` leads where C needs one.

    Two underscores in a row are reserved in C++, one at the start in C; `onnxc_` is the prefix of
    what every output of onnxc shares.
    """
    words = re.sub("_+", "_", "".join(map(_spelled, text))).strip("_")
    if not words:
        return empty
    if words[0].isdigit():
        return letter + words
    if f"{words}_".lower().startswith("onnxc_"):
        return f"{letter}_{words}"
    return words


def c_identifier(text: str) -> str:
    """A C identifier that resembles the text and no keyword, macro or library function has.

    Different texts may give the same identifier: see unique_names.
    """
    words = _words(text, "v", "value")
    return _shortened(f"{words}_v" if _is_reserved(words) else words)


def model_name(stem: str) -> str:
    """The prefix of a model's C names, from the stem of the file to write. Never fails."""
    words = _words(stem, "m", "model")
    taken = _is_reserved(words) or words.endswith(("_run", "_run_static"))
    return _shortened(f"{words}_m" if taken else words)


def check_model_name(name: str) -> None:
    """Raises UsageError, with a name to take instead, where `name` cannot be a model's prefix."""
    proposal = model_name(name)
    if name == proposal:
        return
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        fact = "is not a C identifier that starts with a letter"
    elif _is_reserved(name):
        fact = "is a word of C or C++ or of their libraries"
    elif name.endswith(("_run", "_run_static")):
        fact = "could clash with the functions of another model"
    elif f"{name}_".lower().startswith("onnxc_"):
        fact = "starts like the names that all outputs of onnxc share"
    elif len(name) > LONGEST_IDENTIFIER:
        fact = f"is longer than {LONGEST_IDENTIFIER} characters"
    else:
        fact = "has two underscores in a row or one at the end, which C++ reserves"
    raise UsageError(Kind.MODEL_NAME, f"the name '{comment_text(name)}' {fact}; take '{proposal}'")


class Names:
    """Hands out C identifiers, no two alike even when upper-cased (macros are made of them).

    taken   identifiers that are in use already
    model   the prefix of the model: none of its functions, types and `<MODEL>_` macros is given
    """

    def __init__(self, taken: Iterable[str] = (), model: str = "") -> None:
        own = (
            [f"{model}_{suffix}" for suffix in ("run", "run_static", "workspace")] if model else []
        )
        self._used = {name.upper() for name in (*taken, *own)}
        self._macro_prefix = f"{model.upper()}_" if model else None
        self._last_number: dict[str, int] = {}

    def add(self, text: str) -> str:
        """The text's identifier, numbered from 2 on where it is taken."""
        base = c_identifier(text)
        if self._macro_prefix is not None and base.startswith(self._macro_prefix):
            base = f"v_{base}"
        name, number = base, self._last_number.get(base.upper(), 1)
        while name.upper() in self._used or _is_reserved(name):
            number += 1
            name = f"{base}_{number}"
        self._last_number[base.upper()] = number
        self._used.add(name.upper())
        return name


def unique_names(
    names: Sequence[str], taken: Iterable[str] = (), model: str = ""
) -> tuple[str, ...]:
    """A C identifier for each name, in order, no two alike in any case; see Names.

    A name that is a fit identifier already keeps it, whatever the others are.
    """
    chosen = Names(taken, model)
    found = {name: chosen.add(name) for name in dict.fromkeys(names) if c_identifier(name) == name}
    seen: set[str] = set()
    identifiers: list[str] = []
    for name in names:
        first = name in found and name not in seen
        seen.add(name)
        identifiers.append(found[name] if first else chosen.add(name))
    return tuple(identifiers)


_HARMLESS: Final = re.compile(rf"[\w.:/-]{{0,{LONGEST_COMMENT}}}", re.ASCII)


def _shown(text: str, position: int) -> str:
    """One character of a comment; a \\u escape where it is not plain or could end the comment."""
    character = text[position]
    before, after = text[position - 1 : position], text[position + 1 : position + 2]
    plain = character.isascii() and character.isprintable()
    # "*" at an end of the text could meet a "/" outside, "\" at an end of a line joins two
    # lines, "??" starts a trigraph.
    if character == "*":
        plain = before not in ("", "/") and after not in ("", "/")
    elif character == "\\":
        plain = after.isascii() and after.isalnum()
    elif character == "?":
        plain = before != "?"
    if plain:
        return character
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}"


def comment_text(text: str) -> str:
    """The text on one ASCII line that may stand in a C comment, cut after 64 characters."""
    if _HARMLESS.fullmatch(text):
        return text
    shown: list[str] = []
    length = 0
    for position in range(len(text)):
        piece = _shown(text, position)
        length += len(piece)
        if length > LONGEST_COMMENT:
            return "".join(shown) + "..."
        shown.append(piece)
    return "".join(shown)
