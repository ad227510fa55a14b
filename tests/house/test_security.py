"""What no file of the package or the tools may call, since it would run what somebody else wrote."""

import ast
from pathlib import Path

import yaml

from mgexp.config.values import PlainLoader

ROOT = Path(__file__).parents[2]
CODE = sorted([*(ROOT / "mgexp").rglob("*.py"), *(ROOT / "tools").glob("*.py")])
SCRIPTS = sorted((ROOT / "tools").glob("*.sh"))

BUILTINS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_CALLS = {
    *("os.system", "os.popen", "os.startfile", "pty.spawn", "tempfile.mktemp"),
    *("subprocess.getoutput", "subprocess.getstatusoutput"),
    *("pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.load", "marshal.loads"),
    *("yaml.unsafe_load", "yaml.unsafe_load_all", "yaml.full_load", "yaml.full_load_all"),
    *("yaml.load_all", "torch.hub.load", "torch.hub.load_state_dict_from_url"),
    *("shutil.unpack_archive", "np.fromregex", "np.lib.format.read_array"),
}
FORBIDDEN_NAMES = {"yaml.Loader", "yaml.UnsafeLoader", "yaml.FullLoader", "yaml.CLoader"}
FORBIDDEN_MODULES = {
    *("shelve", "dill", "cloudpickle", "joblib", "marshal", "zipfile", "tarfile"),
    *("requests", "urllib.request", "http.client", "ftplib"),
}
NEEDED_VALUES = {
    "torch.load": ("weights_only", True),
    "np.load": ("allow_pickle", False),
    "numpy.load": ("allow_pickle", False),
}
EXCEPTIONS = {
    # Python itself, with the arguments that submitit gives it; no shell.
    "mgexp/launch/hold_signals.py": "os.execv",
    # Catches the error of a damaged archive.
    "mgexp/run/files.py": "zipfile",
    # Compares checksums, and takes nothing out of an archive.
    "mgexp/run/torch_file.py": "zipfile",
}
"""The files that may, and why."""


def problems(module):
    """What a parsed file calls, imports or derives from that it must not."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            yield from call_problems(node)
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in FORBIDDEN_NAMES:
            yield ast.unparse(node)
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            yield from (name for name in names if name in FORBIDDEN_MODULES)
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            yield from (name for name in names if name in FORBIDDEN_MODULES | FORBIDDEN_CALLS)
        elif isinstance(node, ast.ClassDef) and "pickle.Unpickler" in map(ast.unparse, node.bases):
            yield "derives from pickle.Unpickler"


def call_problems(call):
    """What is wrong with one call."""
    name = ast.unparse(call.func)
    keywords = {word.arg: ast.unparse(word.value) for word in call.keywords}
    if name in BUILTINS | FORBIDDEN_CALLS or name.startswith(("os.exec", "os.spawn")):
        yield name
    if (
        keywords.get("shell", "False") != "False"
        or keywords.get("allow_unsafe", "False") != "False"
    ):
        yield f"{name}(shell or allow_unsafe)"
    if name == "yaml.load" and keywords.get("Loader") != "PlainLoader":
        yield "yaml.load without PlainLoader"
    if name in NEEDED_VALUES:
        word, value = NEEDED_VALUES[name]
        if keywords.get(word) != str(value):
            yield f"{name} without {word}={value}"
    if name.startswith("subprocess.") and call.args and is_text(call.args[0]):
        yield f"{name} of a text"
    if name.endswith((".extractall", ".extract")) and "archive" in name:
        yield name


def is_text(node):
    """Whether an expression is a text, and not a list of words, as far as it shows."""
    if isinstance(node, ast.Constant | ast.JoinedStr):
        return True
    if isinstance(node, ast.BinOp):
        return is_text(node.left) or is_text(node.right)
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith((".format", ".join"))


BAD = """\
eval(text)
compile(text, '', 'exec')
os.execvp('ls', words)
subprocess.run('ls ' + folder, check=True)
subprocess.run(f'ls {folder}')
subprocess.run(' '.join(words))
subprocess.run(words, shell=is_shell)
from pickle import loads
class Mine(pickle.Unpickler): pass
torch.load(path)
torch.load(path, weights_only=False)
np.load(path, allow_pickle=True)
yaml.load(text, Loader=yaml.Loader)
yaml.load(text, Loader=yaml.SafeLoader)
CfgNode.load_yaml_with_base(path, allow_unsafe=True)
import shelve
from urllib import request
"""
GOOD = """\
model.eval()
re.compile('a')
subprocess.run(['git', 'status'], check=True)
subprocess.run([*words], shell=False)
torch.load(path, map_location='cpu', weights_only=True)
np.load(path, allow_pickle=False)
yaml.load(text, Loader=PlainLoader)
pickle.UnpicklingError
"""


def test_what_must_not_be_is_recognised_and_nothing_else():
    assert [code for code in BAD.splitlines() if not [*problems(ast.parse(code))]] == []
    assert [code for code in GOOD.splitlines() if [*problems(ast.parse(code))]] == []


def test_no_code_runs_what_others_wrote():
    found = [
        f"{path.relative_to(ROOT)}: {problem}"
        for path in CODE
        for problem in problems(ast.parse(path.read_text()))
    ]
    assert found == [f"{path}: {problem}" for path, problem in EXCEPTIONS.items()]


def test_the_one_loader_of_yaml_is_a_safe_one():
    assert issubclass(PlainLoader, yaml.SafeLoader)
    assert not issubclass(PlainLoader, yaml.FullLoader)


def test_no_script_evaluates_text():
    assert [path.name for path in SCRIPTS if "eval " in path.read_text()] == []
