"""The optimizers as the papers write them, in plain Python floats, to compare ours with."""

import math


def norm(tensor):
    return math.sqrt(sum(number * number for number in tensor))


def ratio(size, length):
    """Return the trust ratio, which is 1 if either norm is 0."""
    return size / length if size > 0 and length > 0 else 1.0


def lamb(
    weights, gradients, rates, betas=(0.9, 0.999), eps=1e-6, decay=0.0, factors=None, period=None
):
    """``weights`` after a step with each of ``gradients``, at each of ``rates``.

    ``betas`` are two numbers, or a list of such pairs, one for each step; ``factors`` of both in each step, 1
    without them. Moments start again every ``period`` steps. Bias correction divides by the sum of the weights
    that the gradients have in a moment, which is added up here from the weight of each.
    """
    size = len(weights)
    mean, square = [0.0] * size, [0.0] * size
    in_mean, in_square = [], []  # the weight of each gradient so far
    for step, gradient in enumerate(gradients):
        if period and step % period == 0:
            mean, square, in_mean, in_square = [0.0] * size, [0.0] * size, [], []
        factor = factors[step] if factors else 1.0
        pair = betas if isinstance(betas, tuple) else betas[step]
        b1, b2 = factor * pair[0], factor * pair[1]
        mean = [b1 * m + (1 - b1) * g for m, g in zip(mean, gradient, strict=True)]
        square = [b2 * v + (1 - b2) * g * g for v, g in zip(square, gradient, strict=True)]
        in_mean = [*(b1 * share for share in in_mean), 1 - b1]
        in_square = [*(b2 * share for share in in_square), 1 - b2]
        update = [
            (m / sum(in_mean)) / (math.sqrt(v / sum(in_square)) + eps) + decay * w
            for m, v, w in zip(mean, square, weights, strict=True)
        ]
        rate = rates[step] * ratio(norm(weights), norm(update))
        weights = [w - rate * u for w, u in zip(weights, update, strict=True)]
    return weights


def lars(weights, gradients, rates, momentum, coefficient, decay, nesterov=False):
    """``weights`` after a step with each of ``gradients``, at each of ``rates``."""
    velocity = [0.0] * len(weights)
    for rate, gradient in zip(rates, gradients, strict=True):
        own = rate
        if norm(weights) > 0 and norm(gradient) > 0:
            own *= coefficient * norm(weights) / (norm(gradient) + decay * norm(weights))
        move = [own * (g + decay * w) for g, w in zip(gradient, weights, strict=True)]
        velocity = [momentum * v + n for v, n in zip(velocity, move, strict=True)]
        if nesterov:
            ahead = [n + momentum * v for v, n in zip(velocity, move, strict=True)]
        weights = [w - s for w, s in zip(weights, ahead if nesterov else velocity, strict=True)]
    return weights
