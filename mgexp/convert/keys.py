"""PySlowFast's keys: kind and default of those that are converted, and why all others have no key here.

A key that a YAML leaves out has PySlowFast's default, which is often not ours: 8 frames and not 32.
Source: slowfast/config/defaults.py of PySlowFast, main in 2021 (00eb2b4) and after the keys of 2022 were added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mgexp.config.values import PathText, convert, from_text, is_text

SQRT_HALF = 0.5**0.5
OptionalFloat = float | None
NONE_IS: dict[Any, Any] = {OptionalFloat: 0.0, str: "", PathText: ""}
"""What a value that is left empty means, by type."""


@dataclass(frozen=True)
class Converted:
    """A key whose value decides about keys of ours. ``type``: the annotation that such a key of ours has.

    A value of type ``list`` is a list of lists, which PySlowFast does not check either.
    """

    type: Any
    default: Any

    def read(self, value: object) -> Any:  # noqa: ANN401 - of the key's own type
        """Return the value of this type; raises ValueError that says what is wrong with it."""
        if self.type is list:
            return value
        if value is None and self.type in NONE_IS:
            return NONE_IS[self.type]
        if isinstance(value, str) and not is_text(self.type):
            value = from_text(value)
        return convert(float if self.type == OptionalFloat else self.type, value)


@dataclass(frozen=True)
class Fixed:
    """A key with one legal value here: ``here`` says what mgexp does, which no key changes."""

    allowed: tuple[Any, ...]
    here: str


CONVERTED: dict[str, Converted] = {
    "NUM_GPUS": Converted(int, 1),
    "NUM_SHARDS": Converted(int, 1),
    "RNG_SEED": Converted(int, 1),
    "LOG_PERIOD": Converted(int, 10),
    "TRAIN.ENABLE": Converted(bool, True),
    "TRAIN.DATASET": Converted(str, "kinetics"),
    "TRAIN.BATCH_SIZE": Converted(int, 64),
    "TRAIN.CHECKPOINT_FILE_PATH": Converted(PathText, ""),
    "TRAIN.CHECKPOINT_TYPE": Converted(str, "pytorch"),
    "TRAIN.CHECKPOINT_INFLATE": Converted(bool, False),
    "TRAIN.CHECKPOINT_EPOCH_RESET": Converted(bool, False),
    "TRAIN.MIXED_PRECISION": Converted(bool, False),
    "TEST.ENABLE": Converted(bool, True),
    "TEST.DATASET": Converted(str, "kinetics"),
    "TEST.BATCH_SIZE": Converted(int, 8),
    "TEST.CHECKPOINT_FILE_PATH": Converted(PathText, ""),
    "TEST.NUM_ENSEMBLE_VIEWS": Converted(int, 10),
    "TEST.NUM_SPATIAL_CROPS": Converted(int, 3),
    "DATA.PATH_TO_DATA_DIR": Converted(PathText, ""),
    "DATA.PATH_LABEL_SEPARATOR": Converted(str, " "),
    "DATA.PATH_PREFIX": Converted(PathText, ""),
    "DATA.NUM_FRAMES": Converted(int, 8),
    "DATA.SAMPLING_RATE": Converted(int, 8),
    "DATA.TARGET_FPS": Converted(float, 30.0),
    "DATA.MEAN": Converted(tuple[float, ...], (0.45, 0.45, 0.45)),
    "DATA.STD": Converted(tuple[float, ...], (0.225, 0.225, 0.225)),
    "DATA.INPUT_CHANNEL_NUM": Converted(tuple[int, ...], (3, 3)),
    "DATA.REVERSE_INPUT_CHANNEL": Converted(bool, False),
    "DATA.TRAIN_JITTER_SCALES": Converted(tuple[int, ...], (256, 320)),
    "DATA.TRAIN_CROP_SIZE": Converted(int, 224),
    "DATA.TEST_CROP_SIZE": Converted(int, 256),
    "DATA.INV_UNIFORM_SAMPLE": Converted(bool, False),
    "DATA.RANDOM_FLIP": Converted(bool, True),
    "DATA.MULTI_LABEL": Converted(bool, False),
    "DATA.ENSEMBLE_METHOD": Converted(str, "sum"),
    "DATA_LOADER.NUM_WORKERS": Converted(int, 8),
    "AUG.ENABLE": Converted(bool, False),
    "AUG.NUM_SAMPLE": Converted(int, 1),
    "AUG.AA_TYPE": Converted(str, "rand-m9-mstd0.5-inc1"),
    "AUG.RE_PROB": Converted(float, 0.25),
    "AUG.RE_MODE": Converted(str, "pixel"),
    "AUG.RE_COUNT": Converted(int, 1),
    "MODEL.ARCH": Converted(str, "slowfast"),
    "MODEL.MODEL_NAME": Converted(str, "SlowFast"),
    "MODEL.NUM_CLASSES": Converted(int, 400),
    "MODEL.LOSS_FUNC": Converted(str, "cross_entropy"),
    "MODEL.HEAD_ACT": Converted(str, "softmax"),
    "MODEL.DROPOUT_RATE": Converted(float, 0.5),
    "MODEL.FC_INIT_STD": Converted(float, 0.01),
    "MODEL.ACT_CHECKPOINT": Converted(bool, False),
    "RESNET.DEPTH": Converted(int, 50),
    "RESNET.WIDTH_PER_GROUP": Converted(int, 64),
    "RESNET.ZERO_INIT_FINAL_BN": Converted(bool, False),
    "RESNET.NUM_BLOCK_TEMP_KERNEL": Converted(list, [[3], [4], [6], [3]]),
    "RESNET.SPATIAL_STRIDES": Converted(list, [[1], [2], [2], [2]]),
    "RESNET.SPATIAL_DILATIONS": Converted(list, [[1], [1], [1], [1]]),
    "NONLOCAL.LOCATION": Converted(list, [[[]], [[]], [[]], [[]]]),
    "NONLOCAL.GROUP": Converted(list, [[1], [1], [1], [1]]),
    "NONLOCAL.INSTANTIATION": Converted(str, "dot_product"),
    "NONLOCAL.POOL": Converted(list, [[[1, 2, 2], [1, 2, 2]]] * 4),
    "SLOWFAST.ALPHA": Converted(int, 8),
    "SLOWFAST.BETA_INV": Converted(int, 8),
    "SLOWFAST.FUSION_CONV_CHANNEL_RATIO": Converted(int, 2),
    "SLOWFAST.FUSION_KERNEL_SZ": Converted(int, 5),
    "BN.USE_PRECISE_STATS": Converted(bool, False),
    "BN.NUM_BATCHES_PRECISE": Converted(int, 200),
    "BN.WEIGHT_DECAY": Converted(float, 0.0),
    "BN.NORM_TYPE": Converted(str, "batchnorm"),
    "BN.NUM_SPLITS": Converted(int, 1),
    "BN.NUM_SYNC_DEVICES": Converted(int, 1),
    "BN.GLOBAL_SYNC": Converted(bool, False),
    "MULTIGRID.LONG_CYCLE": Converted(bool, False),
    "MULTIGRID.SHORT_CYCLE": Converted(bool, False),
    "MULTIGRID.LONG_CYCLE_FACTORS": Converted(
        tuple[tuple[float, float], ...],
        ((0.25, SQRT_HALF), (0.5, SQRT_HALF), (0.5, 1.0), (1.0, 1.0)),
    ),
    "MULTIGRID.SHORT_CYCLE_FACTORS": Converted(tuple[float, ...], (0.5, SQRT_HALF)),
    "MULTIGRID.EPOCH_FACTOR": Converted(float, 1.5),
    "MULTIGRID.BN_BASE_SIZE": Converted(int, 8),
    "SOLVER.BASE_LR": Converted(float, 0.1),
    "SOLVER.BASE_LR_SCALE_NUM_SHARDS": Converted(bool, False),
    "SOLVER.LR_POLICY": Converted(str, "cosine"),
    "SOLVER.COSINE_END_LR": Converted(float, 0.0),
    "SOLVER.COSINE_AFTER_WARMUP": Converted(bool, False),
    "SOLVER.GAMMA": Converted(float, 0.1),
    "SOLVER.STEPS": Converted(tuple[float, ...], ()),
    "SOLVER.LRS": Converted(tuple[float, ...], ()),
    "SOLVER.MAX_EPOCH": Converted(float, 300.0),
    "SOLVER.MOMENTUM": Converted(float, 0.9),
    "SOLVER.NESTEROV": Converted(bool, True),
    "SOLVER.ZERO_WD_1D_PARAM": Converted(bool, False),
    "SOLVER.CLIP_GRAD_L2NORM": Converted(OptionalFloat, 0.0),
    "SOLVER.WEIGHT_DECAY": Converted(float, 1e-4),
    "SOLVER.WARMUP_EPOCHS": Converted(float, 0.0),
    "SOLVER.WARMUP_START_LR": Converted(float, 0.01),
}
"""By name: keys of which every value has a meaning here, or a message that says why it has none."""

OFF = (False,)
NONE = (None, 0, 0.0)
EMPTY: tuple[Any, ...] = ((), [], "", None)

FIXED: dict[str, Fixed] = {
    "TASK": Fixed(EMPTY, "the task is the classification of videos"),
    "DETECTION.ENABLE": Fixed(OFF, "whole videos are classified, not persons in boxes"),
    "MIXUP.ENABLE": Fixed(OFF, "clips and labels are not mixed"),
    "MASK.ENABLE": Fixed(OFF, "no training on masked clips"),
    "TRAIN.CHECKPOINT_CLEAR_NAME_PATTERN": Fixed(EMPTY, "names of tensors are recognised as they are"),
    "TRAIN.CHECKPOINT_IN_INIT": Fixed(OFF, "weights are loaded after the network is built"),
    "TEST.NUM_TEMPORAL_CLIPS": Fixed(EMPTY, "the views are those of TEST.NUM_ENSEMBLE_VIEWS"),
    "MODEL.DROPCONNECT_RATE": Fixed(NONE, "residual branches are never dropped"),
    "MODEL.DETACH_FINAL_FC": Fixed(OFF, "the whole network is trained"),
    "MODEL.FROZEN_BN": Fixed(OFF, "batch normalisation is trained"),
    "RESNET.TRANS_FUNC": Fixed(("bottleneck_transform",), "residual blocks are bottlenecks"),
    "RESNET.NUM_GROUPS": Fixed((1,), "convolutions have one group"),
    "RESNET.STRIDE_1X1": Fixed(OFF, "the 3 x 3 convolution of a block has its stride"),
    "RESNET.ZERO_INIT_FINAL_CONV": Fixed(OFF, "convolutions start at random"),
    "BN.MOMENTUM": Fixed((0.1,), "running statistics move by 0.1 a step"),
    "BN.EPSILON": Fixed((1e-5,), "1e-5 is added to variances"),
    "DATA.TRAIN_JITTER_SCALES_RELATIVE": Fixed(EMPTY, "the short side is drawn from TRAIN_JITTER_SCALES"),
    "DATA.TRAIN_JITTER_ASPECT_RELATIVE": Fixed(EMPTY, "clips keep their aspect ratio"),
    "DATA.TRAIN_JITTER_MOTION_SHIFT": Fixed(OFF, "all frames of a clip have the same crop"),
    "DATA.TRAIN_JITTER_FPS": Fixed(NONE, "DATA.TARGET_FPS is the same for all clips"),
    "DATA.TRAIN_CROP_NUM_TEMPORAL": Fixed((1,), "a video gives one clip at a time"),
    "DATA.TRAIN_CROP_NUM_SPATIAL": Fixed((1,), "a clip gives one crop"),
    "DATA.COLOR_RND_GRAYSCALE": Fixed(NONE, "clips keep their colours but for AUG"),
    "DATA.TIME_DIFF_PROB": Fixed(NONE, "clips are frames, never differences of them"),
    "DATA.SSL_COLOR_JITTER": Fixed(OFF, "clips keep their colours but for AUG"),
    "DATA.SSL_MOCOV2_AUG": Fixed(OFF, "clips are not blurred"),
    "DATA.SKIP_ROWS": Fixed(NONE, "lists are read from their first line"),
    "DATA.DUMMY_LOAD": Fixed(OFF, "videos are read; tools/bench_step.py times steps without"),
    "SOLVER.OPTIMIZING_METHOD": Fixed(("sgd",), "PySlowFast's SGD is the one optimizer that is converted"),
    "SOLVER.LARS_ON": Fixed(OFF, "PySlowFast's SGD is the one optimizer that is converted"),
    "SOLVER.DAMPENING": Fixed(NONE, "momentum is not damped"),
    "SOLVER.CLIP_GRAD_VAL": Fixed(NONE, "gradients are clipped by their norm alone"),
    "SOLVER.LAYER_DECAY": Fixed((1, 1.0), "all layers have one learning rate"),
}  # fmt: skip
"""By name: keys that must have one value, with what mgexp always does. The first is PySlowFast's default."""

_BY_PROTOCOL = (
    "a run tests at its end and never elsewhere: TEST.NUM_ENSEMBLE_VIEWS x TEST.NUM_SPATIAL_CROPS"
)
_AT_RUN_TIME = "PySlowFast writes it while it runs; here what varies is in the schedule"
_UNREAD = "PySlowFast does not read it either"
_OF_IMAGES = "of training on images"

DROPPED: dict[str, str] = {
    "SHARD_ID": "machines are numbered by torchrun: --node-rank",
    "DIST_BACKEND": "chosen by the device: nccl on GPUs, gloo on CPUs",
    "OUTPUT_DIR": "the run folder is --output of tools/run_net.py",
    "LOG_MODEL_INFO": "tools/show_model.py prints parameters and FLOPs",
    "TRAIN.EVAL_PERIOD": "TRAIN.NUM_EVALUATIONS (10) are spaced evenly by cost; the training is the same",
    "TRAIN.CHECKPOINT_PERIOD": "checkpoints are written every TRAIN.CHECKPOINT_MINUTES (10), and at evaluations",
    "TRAIN.AUTO_RESUME": "the same command resumes its run; --override starts it anew",
    "TRAIN.KILL_LOSS_EXPLOSION_FACTOR": "a run stops where its loss is not finite",
    "TEST.CHECKPOINT_TYPE": _BY_PROTOCOL,
    "TEST.SAVE_RESULTS_PATH": "scores of all videos are always kept, in scores_….npz of the run folder",
    "MODEL.SINGLE_PATHWAY_ARCH": "the pathways follow from MODEL.MODEL_NAME",
    "MODEL.MULTI_PATHWAY_ARCH": "the pathways follow from MODEL.MODEL_NAME",
    "MODEL.FP16_ALLREDUCE": "gradients are exchanged in full precision",
    "RESNET.INPLACE_RELU": "saves memory, changes no result",
    "MULTIGRID.EVAL_FREQ": "TRAIN.NUM_EVALUATIONS (10) are spaced evenly by cost; the training is the same",
    "MULTIGRID.LONG_CYCLE_SAMPLING_RATE": _AT_RUN_TIME,
    "MULTIGRID.DEFAULT_B": _AT_RUN_TIME,
    "MULTIGRID.DEFAULT_T": _AT_RUN_TIME,
    "MULTIGRID.DEFAULT_S": _AT_RUN_TIME,
    "DATA.DECODING_BACKEND": "pyav, or DATA.DECODING_BACKEND torchcodec, with the same frames",
    "DATA.DECODING_SHORT_SIZE": "decoded at full size, or from the level of a clip store that covers a clip",
    "DATA.USE_OFFSET_SAMPLING": "the views of a test are evenly spaced, from the start of a video to its end",
    "DATA.PATH_TO_PRELOAD_IMDB": _OF_IMAGES,
    "DATA.TRAIN_PCA_EIGVAL": _OF_IMAGES + " and of AVA",
    "DATA.TRAIN_PCA_EIGVEC": _OF_IMAGES + " and of AVA",
    "DATA.IN22K_TRAINVAL": _OF_IMAGES,
    "DATA.IN22k_VAL_IN1K": _OF_IMAGES,
    "DATA.IN_VAL_CROP_RATIO": _OF_IMAGES,
    "DATA.LOADER_CHUNK_SIZE": "lists are read whole",
    "DATA.LOADER_CHUNK_OVERALL_SIZE": "lists are read whole",
    "DATA.SSL_COLOR_BRI_CON_SAT": "of DATA.SSL_COLOR_JITTER, which is off",
    "DATA.SSL_COLOR_HUE": "of DATA.SSL_COLOR_JITTER, which is off",
    "DATA.SSL_BLUR_SIGMA_MIN": "of DATA.SSL_MOCOV2_AUG, which is off",
    "DATA.SSL_BLUR_SIGMA_MAX": "of DATA.SSL_MOCOV2_AUG, which is off",
    "DATA_LOADER.PIN_MEMORY": "memory is pinned where there is a GPU",
    "DATA_LOADER.ENABLE_MULTI_THREAD_DECODE": "a worker decodes in one thread; there are many workers",
    "AUG.COLOR_JITTER": "PySlowFast reads it for images only; AUG.COLOR_JITTER here is for clips",
    "AUG.INTERPOLATION": "clips are resized bilinearly, antialiased",
    "AUG.RE_SPLIT": "every clip may be erased",
    "AUG.GEN_MASK_LOADER": "of MASK, which is off",
    "AUG.MASK_TUBE": "of MASK, which is off",
    "AUG.MASK_FRAMES": "of MASK, which is off",
    "AUG.MASK_WINDOW_SIZE": "of MASK, which is off",
    "AUG.MASK_RATIO": "of MASK, which is off",
    "AUG.MAX_MASK_PATCHES_PER_BLOCK": "of MASK, which is off",
    "SOLVER.STEP_SIZE": _UNREAD,
    "SOLVER.WARMUP_FACTOR": _UNREAD,
    "SOLVER.BETAS": "of Adam",
}
"""By name: keys that concern PySlowFast's own workings, with what is done here instead."""

SECTIONS: dict[str, str] = {
    "TENSORBOARD": "metrics.jsonl, evaluations.jsonl and the report of a run hold its curves",
    "BENCHMARK": "tools/bench_loader.py measures loading",
    "DEMO": "tools/predict.py classifies videos",
    "DETECTION": "of detection, which is off",
    "AVA": "of detection, which is off",
    "MIXUP": "of mixing, which is off",
    "MASK": "of masked training, which is off",
    "VIS_MASK": "of masked training, which is off",
    "CONTRASTIVE": "of training without labels",
    "X3D": "of X3D networks",
    "MVIT": "of transformers",
}
"""By section: why all keys of it that are not above are dropped."""
