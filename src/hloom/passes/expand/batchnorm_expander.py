"""batchnorm_expander: expand batch normalization into reductions and elementwise operations."""

from __future__ import annotations

import math

from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import Add, Divide, Multiply, Subtract
from hloom.operations.normalization import BatchNormGrad, BatchNormInference, BatchNormTraining
from hloom.operations.structure import Tuple
from hloom.operations.transcendental import SquareRoot
from hloom.passes.facts import NO_BATCH_NORM
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer
from hloom.shape.element_type import F32, F64


class BatchNormExpander(
    OpExpander,
    name="batchnorm_expander",
    of=(BatchNormTraining, BatchNormInference, BatchNormGrad),
    establishes={NO_BATCH_NORM},
):
    """``batch-norm-training``, ``-inference`` and ``-grad`` → their formulas, in f64 for f64, else in f32."""

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        return _Expansion(i, w).run() if i.operands[0].shape.is_static else None


class _Expansion:
    """The expansion of one instruction, with its operands in the type of the computation."""

    def __init__(self, instruction: HloInstruction, w: Writer) -> None:
        self.instruction = instruction
        operation = instruction.operation
        assert isinstance(operation, (BatchNormTraining, BatchNormInference, BatchNormGrad))
        self.operation = operation
        self.w = w
        self.sizes = instruction.operands[0].shape.dimensions
        self.feature = self.operation.feature_index
        self.others = [d for d in range(len(self.sizes)) if d != self.feature]
        types = [o.shape.element_type for o in instruction.operands]
        self.kind = F64 if F64 in types else F32
        self.operands = [self.w.convert(o, self.kind) for o in instruction.operands]

    def run(self) -> HloInstruction:
        """Add the formulas; return the results."""
        match self.operation:
            case BatchNormTraining():
                expanded = self.training()
            case BatchNormInference():
                expanded = [self.inference()]
            case BatchNormGrad():
                expanded = self.gradients()
        shape = self.instruction.shape
        leaves = shape.tuple_shapes if shape.is_tuple else (shape,)
        results = [self.w.convert(x, leaf.element_type) for x, leaf in zip(expanded, leaves, strict=True)]
        return self.w.op(Tuple(), *results) if shape.is_tuple else results[0]

    def spread(self, vector: HloInstruction) -> HloInstruction:
        """Broadcast one value per feature to all elements."""
        return self.w.broadcast(vector, self.sizes, [self.feature])

    def mean(self, x: HloInstruction) -> HloInstruction:
        """Compute the mean of every feature."""
        count = math.prod(self.sizes[d] for d in self.others)
        total = self.w.sum(x, self.others)
        return self.w.op(Divide(), total, self.w.full(count, total.shape))

    def deviation(self, variance: HloInstruction) -> HloInstruction:
        """Compute sqrt(variance + epsilon) for every feature."""
        epsilon = self.w.full(self.operation.epsilon, variance.shape)
        return self.w.op(SquareRoot(), self.w.op(Add(), variance, epsilon))

    def normalized(
        self,
        centered: HloInstruction,
        variance: HloInstruction,
        scale: HloInstruction,
        offset: HloInstruction,
    ) -> HloInstruction:
        """Compute centered / deviation * scale + offset."""
        w = self.w
        unit = w.op(Divide(), centered, self.spread(self.deviation(variance)))
        return w.op(Add(), w.op(Multiply(), unit, self.spread(scale)), self.spread(offset))

    def training(self) -> list[HloInstruction]:
        """Compute (output, mean, variance)."""
        x, scale, offset = self.operands
        mean = self.mean(x)
        centered = self.w.op(Subtract(), x, self.spread(mean))
        variance = self.mean(self.w.op(Multiply(), centered, centered))
        return [self.normalized(centered, variance, scale, offset), mean, variance]

    def inference(self) -> HloInstruction:
        """Compute the output."""
        x, scale, offset, mean, variance = self.operands
        return self.normalized(self.w.op(Subtract(), x, self.spread(mean)), variance, scale, offset)

    def gradients(self) -> list[HloInstruction]:
        """Compute the gradients of (operand, scale, offset)."""
        w = self.w
        x, scale, mean, variance, grad = self.operands
        deviation = self.spread(self.deviation(variance))
        unit = w.op(Divide(), w.op(Subtract(), x, self.spread(mean)), deviation)
        of_unit = w.op(Multiply(), grad, unit)
        grad_scale, grad_offset = w.sum(of_unit, self.others), w.sum(grad, self.others)
        centered = w.op(Subtract(), grad, self.spread(self.mean(grad)))
        inner = w.op(Subtract(), centered, w.op(Multiply(), unit, self.spread(self.mean(of_unit))))
        grad_x = w.op(Divide(), w.op(Multiply(), self.spread(scale), inner), deviation)
        return [grad_x, grad_scale, grad_offset]
