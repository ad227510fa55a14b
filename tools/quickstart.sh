#!/usr/bin/env bash
# Make a data set of small videos, train the baseline and long on it, and write
# runs/quickstart/report.md and report.html. If it was stopped, start it again and it continues.
#   bash tools/quickstart.sh              baseline and long                 (7 to 22 minutes on 2 cores)
#   bash tools/quickstart.sh --all        all rows and the controls         (about three times as long)
#   bash tools/quickstart.sh --seed 1     another seed; the report shows the mean over all seeds
for argument in "$@"; do
    if [ "$argument" = --help ] || [ "$argument" = -h ]; then
        sed -n '2,/^for/{/^#/s/^# \{0,1\}//p}' "$0"
        exit 0
    fi
done
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

seed=0
rows="baseline long"
all="baseline short long long_short coarse budget/as_long budget/as_long_short"
controls=""
while [ $# -gt 0 ]; do
    case "$1" in
        --all) rows="$all" controls="repeated shuffled reversed" ;;
        --seed) seed=${2:?--seed takes a number} && shift ;;
        *) echo "quickstart.sh: unknown argument $1; see --help" >&2 && exit 2 ;;
    esac
    shift
done

start=$SECONDS
"$PYTHON" tools/make_quickstart.py
for row in $rows; do
    "$PYTHON" tools/run_net.py --cfg "experiments/quickstart/$row.yaml" --seed "$seed"
done
for order in $controls; do
    "$PYTHON" tools/run_net.py --cfg experiments/quickstart/baseline.yaml --seed "$seed" \
        TRAIN.ENABLE False TEST.FRAME_ORDER "$order"
done
"$PYTHON" tools/collect.py runs/quickstart --reports-only --classes data/quickstart/classes.txt
echo
cat runs/quickstart/report.md
echo
echo "Finished in $((SECONDS - start)) seconds: see runs/quickstart/report.html"
