"""gpu.sh: pieces that are done or failed, and the page. The pieces here take no time."""

import sys

import gpu


def piece(name, *texts):
    return gpu.Piece(
        name, f"The {name}", lambda _: [[sys.executable, "-c", text] for text in texts]
    )


def test_a_failure_stops_its_piece_alone_and_is_tried_again(tmp_path, monkeypatch):
    fails = piece("bad", "print('so far')\nraise SystemExit(2)", "print('never')")
    good = piece("good", "print('fine')")
    arguments = ["--device", "cpu", "--tiny", "--output", str(tmp_path)]
    monkeypatch.setattr(gpu, "PIECES", (fails, good))
    assert gpu.main(arguments) == 1
    text = (tmp_path / "page.md").read_text()
    assert "**This piece is not complete:**" in text
    assert "so far" in text
    assert "never\n```" not in text
    assert "fine" in text
    assert not (tmp_path / "bad.done.json").exists()
    monkeypatch.setattr(gpu, "PIECES", (piece("bad", "print('mended')"), good))
    assert gpu.main(arguments) == 0
    assert "**" not in (tmp_path / "page.md").read_text()


def test_pieces_come_in_the_order_of_only_until_the_time_is_over(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(gpu, "PIECES", (piece("one", "print('1')"), piece("two", "print('2')")))
    arguments = ["--device", "cpu", "--tiny", "--output", str(tmp_path), "--only", "two", "one"]
    assert gpu.main([*arguments, "--minutes", "0"]) == 4
    assert gpu.main(arguments) == 0
    assert [line for line in capfd.readouterr().out.split() if line in "12"] == ["2", "1"]
