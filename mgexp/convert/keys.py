"""PySlowFast's keys: types and defaults of the keys that are converted, and why all others have no key here.

If a YAML leaves a key out, it has PySlowFast's default, which often differs from ours: 8 frames and
not 32. Source: slowfast/config/defaults.py of PySlowFast, main in 2021 (00eb2b4) and after the keys
of 2022 were added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mgexp.config.keys import SQRT_HALF
from mgexp.config.values import convert, from_text, is_text


@dataclass(frozen=True)
class Fixed:
    """A key with one legal value: ``here`` says what mgexp always does."""

    allowed: tuple[Any, ...]
    here: str


CONVERTED: dict[str, Any] = {
    "NUM_GPUS": 1,
    "NUM_SHARDS": 1,
    "RNG_SEED": 1,
    "LOG_PERIOD": 10,
    "TRAIN.ENABLE": True,
    "TRAIN.DATASET": "kinetics",
    "TRAIN.BATCH_SIZE": 64,
    "TRAIN.CHECKPOINT_FILE_PATH": "",
    "TRAIN.CHECKPOINT_TYPE": "pytorch",
    "TRAIN.CHECKPOINT_INFLATE": False,
    "TRAIN.CHECKPOINT_EPOCH_RESET": False,
    "TRAIN.MIXED_PRECISION": False,
    "TEST.ENABLE": True,
    "TEST.DATASET": "kinetics",
    "TEST.BATCH_SIZE": 8,
    "TEST.CHECKPOINT_FILE_PATH": "",
    "TEST.NUM_ENSEMBLE_VIEWS": 10,
    "TEST.NUM_SPATIAL_CROPS": 3,
    "DATA.PATH_TO_DATA_DIR": "",
    "DATA.PATH_LABEL_SEPARATOR": " ",
    "DATA.PATH_PREFIX": "",
    "DATA.NUM_FRAMES": 8,
    "DATA.SAMPLING_RATE": 8,
    "DATA.TARGET_FPS": 30.0,
    "DATA.MEAN": (0.45, 0.45, 0.45),
    "DATA.STD": (0.225, 0.225, 0.225),
    "DATA.INPUT_CHANNEL_NUM": (3, 3),
    "DATA.REVERSE_INPUT_CHANNEL": False,
    "DATA.TRAIN_JITTER_SCALES": (256, 320),
    "DATA.TRAIN_JITTER_SCALES_RELATIVE": (),
    "DATA.TRAIN_JITTER_ASPECT_RELATIVE": (),
    "DATA.TRAIN_CROP_SIZE": 224,
    "DATA.TEST_CROP_SIZE": 256,
    "DATA.INV_UNIFORM_SAMPLE": False,
    "DATA.RANDOM_FLIP": True,
    "DATA.MULTI_LABEL": False,
    "DATA.ENSEMBLE_METHOD": "sum",
    "DATA_LOADER.NUM_WORKERS": 8,
    "AUG.ENABLE": False,
    "AUG.NUM_SAMPLE": 1,
    "AUG.AA_TYPE": "rand-m9-mstd0.5-inc1",
    "AUG.RE_PROB": 0.25,
    "AUG.RE_MODE": "pixel",
    "AUG.RE_COUNT": 1,
    "MODEL.ARCH": "slowfast",
    "MODEL.MODEL_NAME": "SlowFast",
    "MODEL.NUM_CLASSES": 400,
    "MODEL.LOSS_FUNC": "cross_entropy",
    "MODEL.HEAD_ACT": "softmax",
    "MODEL.DROPOUT_RATE": 0.5,
    "MODEL.FC_INIT_STD": 0.01,
    "MODEL.ACT_CHECKPOINT": False,
    "RESNET.DEPTH": 50,
    "RESNET.WIDTH_PER_GROUP": 64,
    "RESNET.ZERO_INIT_FINAL_BN": False,
    "RESNET.TRANS_FUNC": "bottleneck_transform",
    "RESNET.NUM_BLOCK_TEMP_KERNEL": [[3], [4], [6], [3]],
    "RESNET.SPATIAL_STRIDES": [[1], [2], [2], [2]],
    "RESNET.SPATIAL_DILATIONS": [[1], [1], [1], [1]],
    "NONLOCAL.LOCATION": [[[]], [[]], [[]], [[]]],
    "NONLOCAL.GROUP": [[1], [1], [1], [1]],
    "NONLOCAL.INSTANTIATION": "dot_product",
    "NONLOCAL.POOL": [[[1, 2, 2], [1, 2, 2]]] * 4,
    "SLOWFAST.ALPHA": 8,
    "SLOWFAST.BETA_INV": 8,
    "SLOWFAST.FUSION_CONV_CHANNEL_RATIO": 2,
    "SLOWFAST.FUSION_KERNEL_SZ": 5,
    "X3D.WIDTH_FACTOR": 1.0,
    "X3D.DEPTH_FACTOR": 1.0,
    "X3D.BOTTLENECK_FACTOR": 1.0,
    "X3D.DIM_C1": 12,
    "X3D.DIM_C5": 2048,
    "X3D.SCALE_RES2": False,
    "X3D.BN_LIN5": False,
    "X3D.CHANNELWISE_3x3x3": True,
    "MVIT.EMBED_DIM": 96,
    "MVIT.DEPTH": 16,
    "MVIT.NUM_HEADS": 1,
    "MVIT.DROPPATH_RATE": 0.1,
    "MVIT.DIM_MUL": [],
    "MVIT.HEAD_MUL": [],
    "MVIT.POOL_Q_STRIDE": [],
    "MVIT.POOL_KV_STRIDE_ADAPTIVE": [],
    "MVIT.POOL_KVQ_KERNEL": [],
    "MVIT.PATCH_KERNEL": (3, 7, 7),
    "MVIT.PATCH_STRIDE": (2, 4, 4),
    "MVIT.PATCH_PADDING": (2, 4, 4),
    "MVIT.PATCH_2D": False,
    "MVIT.MODE": "conv",
    "MVIT.POOL_FIRST": False,
    "MVIT.CLS_EMBED_ON": True,
    "MVIT.MLP_RATIO": 4.0,
    "MVIT.QKV_BIAS": True,
    "MVIT.NORM": "layernorm",
    "MVIT.NORM_STEM": False,
    "MVIT.DROPOUT_RATE": 0.0,
    "MVIT.USE_ABS_POS": True,
    "MVIT.REL_POS_SPATIAL": False,
    "MVIT.REL_POS_TEMPORAL": False,
    "MVIT.REL_POS_ZERO_INIT": False,
    "MVIT.RESIDUAL_POOLING": False,
    "MVIT.DIM_MUL_IN_ATT": False,
    "MVIT.USE_MEAN_POOLING": False,
    "MVIT.ZERO_DECAY_POS_CLS": True,
    "BN.USE_PRECISE_STATS": False,
    "BN.NUM_BATCHES_PRECISE": 200,
    "BN.WEIGHT_DECAY": 0.0,
    "BN.NORM_TYPE": "batchnorm",
    "BN.NUM_SPLITS": 1,
    "BN.NUM_SYNC_DEVICES": 1,
    "BN.GLOBAL_SYNC": False,
    "MULTIGRID.LONG_CYCLE": False,
    "MULTIGRID.SHORT_CYCLE": False,
    "MULTIGRID.LONG_CYCLE_FACTORS": ((0.25, SQRT_HALF), (0.5, SQRT_HALF), (0.5, 1.0), (1.0, 1.0)),
    "MULTIGRID.SHORT_CYCLE_FACTORS": (0.5, SQRT_HALF),
    "MULTIGRID.EPOCH_FACTOR": 1.5,
    "MULTIGRID.BN_BASE_SIZE": 8,
    "SOLVER.BASE_LR": 0.1,
    "SOLVER.BASE_LR_SCALE_NUM_SHARDS": False,
    "SOLVER.LR_POLICY": "cosine",
    "SOLVER.COSINE_END_LR": 0.0,
    "SOLVER.COSINE_AFTER_WARMUP": False,
    "SOLVER.GAMMA": 0.1,
    "SOLVER.STEPS": (),
    "SOLVER.LRS": (),
    "SOLVER.MAX_EPOCH": 300.0,
    "SOLVER.MOMENTUM": 0.9,
    "SOLVER.NESTEROV": True,
    "SOLVER.ZERO_WD_1D_PARAM": False,
    "SOLVER.CLIP_GRAD_L2NORM": 0.0,
    "SOLVER.WEIGHT_DECAY": 1e-4,
    "SOLVER.OPTIMIZING_METHOD": "sgd",
    "SOLVER.BETAS": (0.9, 0.999),
    "SOLVER.LAYER_DECAY": 1.0,
    "MIXUP.ENABLE": False,
    "MIXUP.ALPHA": 0.8,
    "MIXUP.CUTMIX_ALPHA": 1.0,
    "MIXUP.PROB": 1.0,
    "MIXUP.SWITCH_PROB": 0.5,
    "MIXUP.LABEL_SMOOTH_VALUE": 0.1,
    "SOLVER.WARMUP_EPOCHS": 0.0,
    "SOLVER.WARMUP_START_LR": 0.01,
}
"""The keys that are converted, with PySlowFast's defaults. Each of their values decides about keys of ours."""

OFF = (False,)
NONE = (None, 0, 0.0)
EMPTY: tuple[Any, ...] = ((), [], "", None)
"""The values with which a YAML says that a key is not used."""

FIXED: dict[str, Fixed] = {
    "TASK": Fixed(EMPTY, "the task is the classification of videos"),
    "DETECTION.ENABLE": Fixed(OFF, "whole videos are classified, not persons in boxes"),
    "MASK.ENABLE": Fixed(OFF, "no training on masked clips"),
    "TRAIN.CHECKPOINT_CLEAR_NAME_PATTERN": Fixed(EMPTY, "names of tensors are recognised as they are"),
    "TRAIN.CHECKPOINT_IN_INIT": Fixed(OFF, "weights are loaded after the network is built"),
    "TEST.NUM_TEMPORAL_CLIPS": Fixed(EMPTY, "the views are those of TEST.NUM_ENSEMBLE_VIEWS"),
    "MODEL.DROPCONNECT_RATE": Fixed(NONE, "residual branches are never dropped"),
    "MODEL.DETACH_FINAL_FC": Fixed(OFF, "the whole network is trained"),
    "MODEL.FROZEN_BN": Fixed(OFF, "batch normalisation is trained"),
    "MVIT.REV.ENABLE": Fixed(OFF, "activations are kept or computed twice, never reversed"),
    "RESNET.NUM_GROUPS": Fixed((1,), "convolutions have one group"),
    "RESNET.STRIDE_1X1": Fixed(OFF, "the 3 x 3 convolution of a block has its stride"),
    "RESNET.ZERO_INIT_FINAL_CONV": Fixed(OFF, "convolutions start at random"),
    "BN.MOMENTUM": Fixed((0.1,), "running statistics move by 0.1 a step"),
    "BN.EPSILON": Fixed((1e-5,), "1e-5 is added to variances"),
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
    "SOLVER.LARS_ON": Fixed(OFF, "PySlowFast's SGD and AdamW are converted"),
    "SOLVER.DAMPENING": Fixed(NONE, "momentum is not damped"),
    "SOLVER.CLIP_GRAD_VAL": Fixed(NONE, "gradients are clipped by their norm alone"),
}  # fmt: skip
"""Keys that must have one of the allowed values, with what mgexp always does. The first allowed
value is PySlowFast's default."""

_BY_PROTOCOL = (
    "a run tests at its end and never elsewhere: TEST.NUM_ENSEMBLE_VIEWS x TEST.NUM_SPATIAL_CROPS"
)
_AT_RUN_TIME = "PySlowFast writes it while it runs; here the schedule holds what varies"
_UNREAD = "PySlowFast does not read it either"
_OF_IMAGES = "it belongs to training on images"

DROPPED: dict[str, str] = {
    "SHARD_ID": "machines are numbered by torchrun: --node-rank",
    "DIST_BACKEND": "chosen by the device: nccl on GPUs, gloo on CPUs",
    "OUTPUT_DIR": "the run folder is --output of tools/run_net.py",
    "LOG_MODEL_INFO": "tools/show_model.py prints parameters and FLOPs",
    "TRAIN.EVAL_PERIOD": "TRAIN.NUM_EVALUATIONS (10) are spaced evenly by cost; the training is the same",
    "TRAIN.CHECKPOINT_PERIOD": "checkpoints are written every TRAIN.CHECKPOINT_MINUTES (10), and at evaluations",
    "TRAIN.AUTO_RESUME": "the same command resumes its run; another --output begins a new one",
    "TRAIN.KILL_LOSS_EXPLOSION_FACTOR": "a run stops where its loss is not finite",
    "TEST.CHECKPOINT_TYPE": _BY_PROTOCOL,
    "TEST.SAVE_RESULTS_PATH": "scores of all videos are always kept, in scores_….npz of the run folder",
    "MODEL.SINGLE_PATHWAY_ARCH": "the pathways follow from MODEL.MODEL_NAME",
    "MODEL.MULTI_PATHWAY_ARCH": "the pathways follow from MODEL.MODEL_NAME",
    "MODEL.FP16_ALLREDUCE": "TRAIN.BF16_ALLREDUCE exchanges gradients in bf16, which do not overflow",
    "MVIT.SEP_POS_EMBED": "it says how absolute positions are stored, and the network has none",
    "MVIT.SEPARATE_QKV": "one layer or three for queries, keys and values: the function is the same",
    "RESNET.INPLACE_RELU": "saves memory, changes no result",
    "MULTIGRID.EVAL_FREQ": "TRAIN.NUM_EVALUATIONS (10) are spaced evenly by cost; the training is the same",
    "MULTIGRID.LONG_CYCLE_SAMPLING_RATE": _AT_RUN_TIME,
    "MULTIGRID.DEFAULT_B": _AT_RUN_TIME,
    "MULTIGRID.DEFAULT_T": _AT_RUN_TIME,
    "MULTIGRID.DEFAULT_S": _AT_RUN_TIME,
    "DATA.DECODING_BACKEND": "PyAV decodes",
    "DATA.DECODING_SHORT_SIZE": "decoded at full size, or from the level of a clip store that covers a clip",
    "DATA.USE_OFFSET_SAMPLING": "the views of a test are evenly spaced, from the start of a video to its end",
    "DATA.PATH_TO_PRELOAD_IMDB": _OF_IMAGES,
    "DATA.TRAIN_PCA_EIGVAL": f"{_OF_IMAGES} and on AVA",
    "DATA.TRAIN_PCA_EIGVEC": f"{_OF_IMAGES} and on AVA",
    "DATA.IN22K_TRAINVAL": _OF_IMAGES,
    "DATA.IN22k_VAL_IN1K": _OF_IMAGES,
    "DATA.IN_VAL_CROP_RATIO": _OF_IMAGES,
    "DATA.LOADER_CHUNK_SIZE": "lists are read whole",
    "DATA.LOADER_CHUNK_OVERALL_SIZE": "lists are read whole",
    "DATA.SSL_COLOR_BRI_CON_SAT": "it belongs to DATA.SSL_COLOR_JITTER, which is off",
    "DATA.SSL_COLOR_HUE": "it belongs to DATA.SSL_COLOR_JITTER, which is off",
    "DATA.SSL_BLUR_SIGMA_MIN": "it belongs to DATA.SSL_MOCOV2_AUG, which is off",
    "DATA.SSL_BLUR_SIGMA_MAX": "it belongs to DATA.SSL_MOCOV2_AUG, which is off",
    "DATA_LOADER.PIN_MEMORY": "memory is pinned where there is a GPU",
    "DATA_LOADER.ENABLE_MULTI_THREAD_DECODE": "a worker decodes in one thread; there are many workers",
    "AUG.COLOR_JITTER": "PySlowFast reads it for images only; AUG.COLOR_JITTER here is for clips",
    "AUG.INTERPOLATION": "clips are resized bilinearly, antialiased",
    "AUG.RE_SPLIT": "every clip may be erased",
    "AUG.GEN_MASK_LOADER": "it belongs to MASK, which is off",
    "AUG.MASK_TUBE": "it belongs to MASK, which is off",
    "AUG.MASK_FRAMES": "it belongs to MASK, which is off",
    "AUG.MASK_WINDOW_SIZE": "it belongs to MASK, which is off",
    "AUG.MASK_RATIO": "it belongs to MASK, which is off",
    "AUG.MAX_MASK_PATCHES_PER_BLOCK": "it belongs to MASK, which is off",
    "PREFETCH.NUM_LOADERS": _UNREAD,
    "SOLVER.STEP_SIZE": _UNREAD,
    "SOLVER.WARMUP_FACTOR": _UNREAD,
}
"""Keys of PySlowFast's own machinery, with what mgexp does instead. Their values do not matter."""

SECTIONS: dict[str, str] = {
    "TENSORBOARD": "metrics.jsonl, evaluations.jsonl and the report of a run hold its curves",
    "BENCHMARK": "tools/bench_loader.py measures loading",
    "DEMO": "tools/predict.py classifies videos",
    "DETECTION": "it belongs to detection, which is off",
    "AVA": "it belongs to detection, which is off",
    "MASK": "it belongs to masked training, which is off",
    "VIS_MASK": "it belongs to masked training, which is off",
    "CONTRASTIVE": "it belongs to training without labels",
}
"""Sections of PySlowFast, with the reason why all their other keys are dropped."""


def type_of(name: str) -> Any:  # noqa: ANN401 - an annotation
    """Return the type of a key that is converted, which its default shows.

    A default that is a list is a table of lists. Its values are taken as they are, as in PySlowFast.
    """
    default = CONVERTED[name]
    if name == "MULTIGRID.LONG_CYCLE_FACTORS":
        return tuple[tuple[float, float], ...]
    if not isinstance(default, tuple):
        return type(default)
    # An empty tuple is one of epochs or rates.
    kind: Any = type(default[0]) if default else float
    return tuple[kind, ...]


def read(name: str, value: object) -> Any:  # noqa: ANN401 - of the key's own type
    """Convert a given value to the type of its key. Raises ValueError with what is wrong."""
    kind = type_of(name)
    if kind is list:
        return value
    # PySlowFast writes None for no file and for no limit.
    if value is None and (kind is str or name == "SOLVER.CLIP_GRAD_L2NORM"):
        return kind()
    if isinstance(value, str) and not is_text(kind):
        value = from_text(value)
    return convert(kind, value)
