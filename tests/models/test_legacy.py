"""Caffe2 pickles in tools/convert_weights.py: every tensor by its name, and nothing but arrays is read."""

import os
import pickle

import numpy as np
import pytest
from tiny import load_tool

from mgexp.errors import InputError

TOOL = load_tool("convert_weights")
read_caffe2 = TOOL.read_caffe2


def write_blobs(path, blobs, protocol=2):
    path.write_bytes(pickle.dumps({"blobs": blobs, "cfg": "SOLVER: {}"}, protocol=protocol))
    return path


# Blobs as they stand in the released SLOWFAST_8x8_R50.pkl and I3D_NLN_8x8_R50.pkl.
CAFFE2 = {
    "conv1_w": "s1.pathway0_stem.conv.weight",
    "t_conv1_w": "s1.pathway1_stem.conv.weight",
    "res_conv1_bn_s": "s1.pathway0_stem.bn.weight",
    "t_res_conv1_bn_riv": "s1.pathway1_stem.bn.running_var",
    "t_pool1_subsample_w": "s1_fuse.conv_f2s.weight",
    "t_pool1_subsample_bn_rm": "s1_fuse.bn.running_mean",
    "t_res2_2_branch2c_bn_subsample_w": "s2_fuse.conv_f2s.weight",
    "t_res3_3_branch2c_bn_subsample_bn_riv": "s3_fuse.bn.running_var",
    "t_res4_5_branch2c_bn_subsample_w": "s4_fuse.conv_f2s.weight",
    "t_res4_5_branch2c_bn_subsample_bn_b": "s4_fuse.bn.bias",
    "res2_0_branch1_w": "s2.pathway0_res0.branch1.weight",
    "res2_0_branch1_bn_b": "s2.pathway0_res0.branch1_bn.bias",
    "t_res3_0_branch1_bn_rm": "s3.pathway1_res0.branch1_bn.running_mean",
    "res2_1_branch2b_w": "s2.pathway0_res1.branch2.b.weight",
    "res4_22_branch2a_w": "s4.pathway0_res22.branch2.a.weight",
    "t_res5_2_branch2c_bn_s": "s5.pathway1_res2.branch2.c_bn.weight",
    "nonlocal_conv3_1_theta_w": "s3.pathway0_nonlocal1.conv_theta.weight",
    "nonlocal_conv3_3_phi_b": "s3.pathway0_nonlocal3.conv_phi.bias",
    "nonlocal_conv4_1_out_w": "s4.pathway0_nonlocal1.conv_out.weight",
    "nonlocal_conv4_5_g_b": "s4.pathway0_nonlocal5.conv_g.bias",
    "nonlocal_conv4_3_bn_rm": "s4.pathway0_nonlocal3.bn.running_mean",
    "pred_w": "head.projection.weight",
    "pred_b": "head.projection.bias",
}


def test_every_tensor_of_a_legacy_file_has_pyslowfasts_name(tmp_path):
    """What caffe2 kept of its training is passed over."""
    arrays = {blob: np.full(2, number, np.float32) for number, blob in enumerate(CAFFE2)}
    training = {"lr": np.ones(1), **{f"{blob}_momentum": one for blob, one in arrays.items()}}
    file = read_caffe2(write_blobs(tmp_path / "w.pkl", {**arrays, **training}))
    assert file.naming == "PySlowFast"
    found = {name: tensor.tolist() for name, tensor in file.tensors.items()}
    assert found == {name: [number] * 2 for number, name in enumerate(CAFFE2.values())}


def test_a_file_of_python_2_is_read(tmp_path):
    """Protocol 2 with text for bytes, and numpy's old name of its module, as Python 2 wrote it."""
    array = np.arange(4, dtype=np.float32)
    blob = pickle.dumps({"blobs": {"conv1_w": array}}, protocol=2)
    old = blob.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    assert b"numpy.core.multiarray" in old
    (tmp_path / "w.pkl").write_bytes(old)
    tensor = read_caffe2(tmp_path / "w.pkl").tensors["s1.pathway0_stem.conv.weight"]
    assert tensor.tolist() == [0, 1, 2, 3]


class Bomb:
    """Runs a command as it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def refusal(path):
    with pytest.raises(InputError) as caught:
        read_caffe2(path)
    return str(caught.value)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_foreign_class_is_refused_before_it_runs(protocol, tmp_path):
    path = write_blobs(tmp_path / "w.pkl", {"conv1_w": Bomb(tmp_path / "ran")}, protocol)
    assert "it names posix.system, which is no array of floats" in refusal(path)
    assert not (tmp_path / "ran").exists()


def test_flags_that_would_make_numpy_follow_any_pointer_do_nothing(tmp_path):
    """numpy.dtype("O8") with its flags set to 0: numpy itself takes the bytes of such an array for addresses."""
    state = b"(K\x03X\x01\x00\x00\x00|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    dtype = b"cnumpy\ndtype\n(X\x02\x00\x00\x00O8\x89\x88tR" + state
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tX\x01\x00\x00\x00btR"
        b"(K\x01(K\x01t" + dtype + b"\x89X\x08\x00\x00\x00AAAAAAAAtb"
    )
    path = tmp_path / "w.pkl"
    path.write_bytes(b"\x80\x02ccollections\nOrderedDict\n(" + array + b"tR.")
    assert "it holds an array of 'O8', not of floats" in refusal(path)


def test_a_truncated_pickle(tmp_path):
    path = write_blobs(tmp_path / "w.pkl", {"conv1_w": np.ones(1000, np.float32)})
    path.write_bytes(path.read_bytes()[:-500])
    assert f"{path} is no file of caffe2 weights" in refusal(path)


@pytest.mark.parametrize(("kind", "order"), [(np.float16, "C"), (np.float64, "F")])
def test_every_kind_of_float_is_read(kind, order, tmp_path):
    array = np.arange(6, dtype=kind).reshape(2, 3).copy(order=order)
    found = read_caffe2(write_blobs(tmp_path / "w.pkl", {"conv1_w": array})).tensors
    assert found["s1.pathway0_stem.conv.weight"].tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("blobs", "message"),
    [
        ({"conv1_w": "text"}, "conv1_w is no array"),
        ({"conv1_w": np.array([{}], dtype=object)}, "holds an array of 'O8', not of floats"),
        ({"conv1_w": np.ones(1, np.int8)}, "holds an array of 'i1', not of floats"),
        ({"conv1_w": np.ones(1, ">f4")}, "holds an array of byte order '>', not '<'"),
        ([1], "is no file of caffe2 weights"),
    ],
)
def test_what_is_no_file_of_weights(blobs, message, tmp_path):
    assert message in refusal(write_blobs(tmp_path / "w.pkl", blobs))
