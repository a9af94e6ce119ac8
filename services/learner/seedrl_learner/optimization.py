"""The optimizer: gradient clipping, learning-rate decay and one fused update a variable."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from seedrl_core.config import OptimizerConfig

_ADAM_BETA_1 = 0.9
_ADAM_BETA_2 = 0.999


class Optimization(tf.Module):
    """Applies gradients to the variables it was made for. All its state exists from the start, so a checkpoint fits."""

    def __init__(self, config: OptimizerConfig, variables: Sequence[tf.Variable]) -> None:
        """Takes a resolved configuration and the variables to train."""
        super().__init__()
        assert config.learning_rate is not None, "configuration not resolved"
        assert config.max_gradient_norm is not None, "configuration not resolved"
        assert config.epsilon is not None and config.decay_power is not None, "configuration not resolved"
        self._config = config
        self._learning_rate = config.learning_rate
        self._max_gradient_norm = config.max_gradient_norm
        self._epsilon = config.epsilon
        self._decay_power = config.decay_power
        self._variables = tuple(variables)
        # Adam: first and second moment; RMSProp: momentum and mean square.
        self.momentum = [tf.Variable(tf.zeros_like(v), trainable=False) for v in variables]
        initial = tf.zeros_like if config.name == "adam" else tf.ones_like
        self.mean_square = [tf.Variable(initial(v), trainable=False) for v in variables]
        self.updates = tf.Variable(0, dtype=tf.int64, trainable=False)

    def apply(self, gradients: Sequence[tf.Tensor], fraction: tf.Tensor) -> dict[str, tf.Tensor]:
        """One update, to be traced into the tf.function of a training step.

        Args:
          gradients: of the variables, in their order.
          fraction: scalar float32, how much of the run is done, 0..1; the learning rate falls with it where configured.

        Returns:
          Scalar metrics.

        Raises:
          tf.errors.InvalidArgumentError: a gradient is not finite; no variable has been changed.
        """
        norm = tf.debugging.check_numerics(tf.linalg.global_norm(gradients), "global norm of the gradients")
        scale = self._max_gradient_norm / tf.maximum(norm, self._max_gradient_norm)
        decayed = tf.pow(1.0 - fraction, self._decay_power)
        learning_rate = self._learning_rate * decayed if self._config.decay else self._learning_rate
        learning_rate = tf.convert_to_tensor(learning_rate, tf.float32)
        update = self._adam if self._config.name == "adam" else self._rmsprop
        # Nothing is written before the norm has been checked.
        with tf.control_dependencies([norm]):
            step = tf.cast(self.updates.assign_add(1), tf.float32)
        for variable, momentum, mean_square, gradient in zip(
            self._variables, self.momentum, self.mean_square, gradients, strict=True
        ):
            update(variable, momentum, mean_square, gradient * scale, learning_rate, step)
        return {"train/gradient_norm": norm, "train/learning_rate": learning_rate}

    def _adam(
        self,
        variable: tf.Variable,
        momentum: tf.Variable,
        mean_square: tf.Variable,
        gradient: tf.Tensor,
        learning_rate: tf.Tensor,
        step: tf.Tensor,
    ) -> None:
        """Adam (arXiv 1412.6980)."""
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=momentum.handle,
            v=mean_square.handle,
            beta1_power=tf.pow(_ADAM_BETA_1, step),
            beta2_power=tf.pow(_ADAM_BETA_2, step),
            lr=learning_rate,
            beta1=_ADAM_BETA_1,
            beta2=_ADAM_BETA_2,
            epsilon=self._epsilon,
            grad=gradient,
        )

    def _rmsprop(
        self,
        variable: tf.Variable,
        momentum: tf.Variable,
        mean_square: tf.Variable,
        gradient: tf.Tensor,
        learning_rate: tf.Tensor,
        step: tf.Tensor,
    ) -> None:
        """RMSProp as IMPALA uses it: the mean square starts at 1, epsilon is inside the root."""
        tf.raw_ops.ResourceApplyRMSProp(
            var=variable.handle,
            ms=mean_square.handle,
            mom=momentum.handle,
            lr=learning_rate,
            rho=self._config.rms_decay,
            momentum=self._config.momentum,
            epsilon=self._epsilon,
            grad=gradient,
        )
