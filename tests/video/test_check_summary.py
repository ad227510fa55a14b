"""The table by kind, against lines written by hand."""

from mgexp.video.check import CheckSummary, VideoCheck

CHECKS = [
    *(VideoCheck(f"{index}.mp4", "ok", duration_seconds=1.5) for index in range(4)),
    *(VideoCheck(f"h{index}.mp4", "hung", "too slow") for index in range(5)),
    VideoCheck("t.avi", "timestamps_not_monotonic", "3 of 9 frames"),
]


def test_the_summary_for_programs():
    assert CheckSummary(CHECKS, num_known=3).as_json() == {
        "num_videos": 10,
        "num_unusable": 5,
        "num_known": 3,
        "kinds": {"ok": 4, "timestamps_not_monotonic": 1, "hung": 5},
        "video_seconds": 6.0,
    }


def test_the_table_for_people():
    lines = CheckSummary(CHECKS, num_known=3).as_text().splitlines()
    assert lines[0].split() == ["kind", "videos", "share", "meaning"]
    assert lines[1].split()[:3] == ["ok", "4", "40.00%"]
    assert lines[2].split()[:3] == ["timestamps_not_monotonic", "1", "10.00%"]
    assert lines[3] == "    t.avi: 3 of 9 frames"
    assert lines[4].split()[:3] == ["hung", "5", "50.00%"]
    assert lines[5:9] == [
        *(f"    h{index}.mp4: too slow" for index in range(3)),
        "    ... and 2 more",
    ]
    assert lines[9] == "10 videos, 5 unusable; 3 were known from an earlier call"
    assert len(lines) == 10
