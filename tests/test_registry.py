"""files of a user register networks, optimizers, losses and keys, and faults in them are told."""

from dataclasses import dataclass

import pytest
import torch
from tiny import tiny_config
from torch import nn

from mgexp.config.keys import BY_NAME, add_section, default_config, own
from mgexp.config.load import flatten, load_config, to_yaml
from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.launch.run import RunOptions, build_job
from mgexp.models.build import build_model, build_problems
from mgexp.models.layers import ClipDropout
from mgexp.multigrid import GroupedBatchNorm3d
from mgexp.registry import MODELS, OPTIMIZERS, import_file, imported
from mgexp.run.environment import describe

pytestmark = pytest.mark.usefixtures("own_code")

FILE = """
from dataclasses import dataclass
import torch
from torch import nn
from mgexp.config.keys import add_section, own
from mgexp.registry import MODELS

@dataclass(frozen=True)
class MyKeys:
    WIDTH: int = own(4, "channels")

add_section("MY_NET", MyKeys)

@MODELS.register()
class MyNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Conv3d(3, cfg.MY_NET.WIDTH, 3, 2), nn.BatchNorm3d(cfg.MY_NET.WIDTH)])
        self.end = nn.Sequential(nn.Dropout(0.5), nn.Linear(cfg.MY_NET.WIDTH, cfg.MODEL.NUM_CLASSES))

    def forward(self, clips):
        for block in self.blocks:
            clips = block(clips)
        return self.end(clips.mean(dim=(2, 3, 4)))
"""
OWN = {"MODEL.MODEL_NAME": "MyNet"}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my_file.py"
    path.write_text(FILE)
    return path


def test_a_network_of_ones_own_gets_grouped_batch_norm_and_dropout_by_clip(file, tmp_path):
    import_file(file)
    model = build_model(tiny_config(tmp_path, {**OWN, "MY_NET.WIDTH": 6}))
    assert isinstance(model.blocks[1], GroupedBatchNorm3d)
    assert isinstance(model.end[0], ClipDropout)
    assert model.end[1].in_features == 6


def test_its_weights_are_drawn_from_the_seed_of_the_run(file, tmp_path):
    import_file(file)
    weights = [
        build_model(tiny_config(tmp_path, {**OWN, "RNG_SEED": seed})).end[1].weight
        for seed in (0, 0, 1)
    ]
    assert weights[0].equal(weights[1])
    assert not weights[0].equal(weights[2])


def test_its_keys_are_read_checked_and_written(file, tmp_path):
    import_file(file)
    cfg = tiny_config(tmp_path, {**OWN, "MY_NET.WIDTH": 6})
    assert dict(flatten(cfg))["MY_NET.WIDTH"] == 6
    (tmp_path / "again.yaml").write_text(to_yaml(cfg))
    assert load_config(tmp_path / "again.yaml") == cfg
    assert default_config().MY_NET.WIDTH == 4
    with pytest.raises(InputError, match=r"MY_NET\.WIDTH = 'wide' is not a whole number: channels"):
        tiny_config(tmp_path, {"MY_NET.WIDTH": "wide"})


def test_a_file_is_run_once(file):
    first = import_file(file)
    assert import_file(file) == first
    assert imported() == (first,)
    assert describe()["imports"] == f"{file} ({first.digest[:12]})"


def test_a_file_that_changed_since_a_run_was_submitted_is_refused(file, tmp_path):
    import_file(file)
    options = RunOptions(tmp_path / "none.yaml")
    file.write_text(FILE + "\n")
    with pytest.raises(InputError, match=r"my_file\.py: the file has changed since"):
        build_job(options, Processes())


def test_modules_beside_the_file_can_be_imported(tmp_path):
    (tmp_path / "my_layers_beside.py").write_text("WIDTH = 5\n")
    (tmp_path / "my_file.py").write_text(
        "from mgexp.registry import OPTIMIZERS\nfrom my_layers_beside import WIDTH\n"
        "OPTIMIZERS.add('five', lambda groups, solver: WIDTH)\n"
    )
    import_file(tmp_path / "my_file.py")
    assert OPTIMIZERS.find("five")(None, None) == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file or directory"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("class Half(", "SyntaxError"),
        (
            "from mgexp.registry import MODELS\n@MODELS.register()\ndef SlowFast(cfg): pass",
            "An object named 'SlowFast' was already registered in 'MODEL.MODEL_NAME'",
        ),
    ],
)
def test_a_file_that_cannot_be_imported_is_told(text, said, tmp_path):
    path = tmp_path / "my_file.py"
    if text is not None:
        path.write_text(text)
    for _ in range(2):  # a file that failed is not taken for one that was imported
        with pytest.raises(InputError, match=said):
            import_file(path)


def test_an_unknown_name_is_told_with_all_names():
    with pytest.raises(
        InputError, match=r"SOLVER\.OPTIMIZING_METHOD = adamw2: there are sgd, lars, lamb"
    ):
        OPTIMIZERS.find("adamw2")


@dataclass(frozen=True)
class Section:
    WIDTH: int = own(4, "channels")


@pytest.mark.parametrize(
    ("name", "said"), [("My_Net", "takes capitals"), ("TRAIN", "there is a section TRAIN already")]
)
def test_a_section_that_cannot_be_added_is_refused(name, said):
    known = dict(BY_NAME)
    with pytest.raises(ValueError, match=said):
        add_section(name, Section)
    assert known == BY_NAME


def test_a_network_of_2d_convolutions_is_built_and_normalised_over_groups(tmp_path):
    @MODELS.register()
    class FrameByFrame(nn.Module):
        def __init__(self, cfg):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
            self.head = nn.Linear(4, cfg.MODEL.NUM_CLASSES)

        def forward(self, clips):
            frames = clips.transpose(1, 2).flatten(0, 1)
            return self.head(
                self.norm(self.conv(frames)).mean((2, 3)).unflatten(0, (-1, 8)).mean(1)
            )

    cfg = tiny_config(tmp_path, {"MODEL.MODEL_NAME": "FrameByFrame"})
    model = build_model(cfg)
    assert type(model.norm).__name__ == "GroupedBatchNorm2d"
    assert model(torch.zeros(2, 3, 8, 32, 32)).shape == (2, 2)
    assert build_problems(cfg, [(8, 32)]) == []


REFUSED = [
    (
        lambda cfg: nn.Sequential(nn.Conv3d(3, 4, 3), nn.BatchNorm3d(4), nn.BatchNorm1d(4)),
        "has BatchNorm1d: only nn.BatchNorm3d and nn.BatchNorm2d have",
    ),
    (lambda cfg: nn.BatchNorm3d(3, affine=False), "grouped statistics need affine=True"),
    (
        lambda cfg: nn.Sequential(nn.BatchNorm3d(3), nn.BatchNorm3d(3, momentum=0.01)),
        "momentum 0.01 and 0.1: give all",
    ),
    (lambda cfg: nn.BatchNorm3d(3, momentum=None), "give all layers one momentum above 0"),
    (
        lambda cfg: nn.Sequential(nn.AvgPool3d((8, 32, 32)), nn.Flatten(), nn.Linear(3, 2)),
        "cannot take clips of 4 frames of 32 x 32 pixels: it does not run",
    ),
    (lambda cfg: cfg.NO_SUCH_SECTION, "cannot be built: AttributeError"),
]


@pytest.mark.parametrize(("make", "said"), REFUSED)
def test_a_network_that_cannot_be_trained_is_refused(make, said, tmp_path):
    MODELS.add("mine", make)
    cfg = tiny_config(tmp_path, {"MODEL.MODEL_NAME": "mine"})
    (problem,) = build_problems(cfg, [(8, 32), (4, 32)])
    assert "mine" in problem and said in problem


def test_a_network_without_blocks_cannot_compute_them_again(tmp_path):
    MODELS.add("mine", lambda cfg: nn.Linear(3, 4))
    changes = {"MODEL.MODEL_NAME": "mine", "TRAIN.ACTIVATION_CHECKPOINTING": True}
    (problem,) = build_problems(tiny_config(tmp_path, changes), [(8, 32)])
    assert "Linear has no nn.ModuleList called blocks" in problem
