"""The types of layers that OpenVINO reads from IR files, by the numbers of the opsets that have them.

Read off the headers that the wheel of OpenVINO 2026.4.1 carries (openvino/include/openvino/opsets); a test compares.
"""

from collections.abc import Mapping

__all__ = ["LAYER_TYPES", "OPENVINO", "WRITTEN_AS"]

OPENVINO = "2026.4.1"
WRITTEN_AS = {
    "Const": "Constant",
    "ReLU": "Relu",
    "PReLU": "PRelu",
    "SoftMax": "Softmax",
}  # in IR -> in an opset

# Ranges of opsets, and what all of them have.
_TABLE = {
    ((1, 1),): ("Reverse Xor"),
    ((1, 1), (3, 16)): ("RNNCell ShuffleChannels"),
    ((1, 16),): (
        "Abs Acos Add Asin Atan AvgPool BatchNormInference BinaryConvolution Broadcast CTCGreedyDecoder Ceiling Clamp "
        "Concat Constant ConvertLike Convolution ConvolutionBackpropData Cos Cosh DeformableConvolution "
        "DeformablePSROIPooling DepthToSpace DetectionOutput Divide Elu Equal Erf Exp FakeQuantize Floor FloorMod GRN "
        "Gather GatherTree Greater GreaterEqual GroupConvolution GroupConvolutionBackpropData HardSigmoid Interpolate "
        "LRN LSTMCell Less LessEqual Log LogicalAnd LogicalNot LogicalOr LogicalXor MatMul MaxPool Maximum Minimum "
        "Mod Multiply Negative NonMaxSuppression NormalizeL2 NotEqual OneHot PRelu PSROIPooling Pad Power PriorBox "
        "PriorBoxClustered Proposal Range ReduceLogicalAnd ReduceLogicalOr ReduceMax ReduceMean ReduceMin ReduceProd "
        "ReduceSum RegionYolo Relu Reshape Result ReverseSequence Select Selu Sigmoid Sign Sin Sinh Softmax "
        "SpaceToDepth Split Sqrt SquaredDifference Squeeze StridedSlice Subtract Tan Tanh TensorIterator Tile TopK "
        "Transpose Unsqueeze VariadicSplit"
    ),
    ((1, 17),): ("Convert Parameter ShapeOf"),
    ((2, 16),): ("BatchToSpace Gelu MVN ROIPooling ReorgYolo SpaceToBatch"),
    ((3, 16),): (
        "Assign Bucketize CumSum EmbeddingBagOffsetsSum EmbeddingBagPackedSum EmbeddingSegmentsSum "
        "ExtractImagePatches GRUCell NonZero ROIAlign ReadValue ScatterElementsUpdate ScatterUpdate"
    ),
    ((4, 16),): ("Acosh Asinh Atanh CTCLoss HSwish Mish ReduceL1 ReduceL2 ScatterNDUpdate SoftPlus Swish"),
    ((5, 16),): ("GRUSequence GatherND HSigmoid LSTMSequence LogSoftmax Loop RNNSequence Round"),
    ((6, 16),): (
        "CTCGreedyDecoderSeqLen ExperimentalDetectronDetectionOutput "
        "ExperimentalDetectronGenerateProposalsSingleImage ExperimentalDetectronPriorGridGenerator "
        "ExperimentalDetectronROIFeatureExtractor ExperimentalDetectronTopKROIs GatherElements"
    ),
    ((7, 16),): ("DFT Einsum IDFT Roll"),
    ((8, 16),): (
        "AdaptiveAvgPool AdaptiveMaxPool I420toBGR I420toRGB If MatrixNms MulticlassNms NV12toBGR NV12toRGB "
        "RandomUniform Slice"
    ),
    ((9, 16),): ("Eye GenerateProposals GridSample IRDFT RDFT SoftSign"),
    ((10, 16),): ("IsFinite IsInf IsNaN Unique"),
    ((12, 16),): ("GroupNormalization"),
    ((13, 16),): (
        "BitwiseAnd BitwiseNot BitwiseOr BitwiseXor FakeConvert Multinomial NMSRotated ScaledDotProductAttention"
    ),
    ((14, 16),): ("ConvertPromoteTypes Inverse"),
    ((15, 16),): (
        "BitwiseLeftShift BitwiseRightShift Col2Im EmbeddingBagOffsets EmbeddingBagPacked ROIAlignRotated STFT "
        "SearchSorted SliceScatter StringTensorPack StringTensorUnpack"
    ),
    ((16, 16),): ("ISTFT Identity SegmentMax SparseFillEmptyRows"),
    ((17, 17),): ("BGRtoNV12 ErfInv GroupedMatMul RGBtoNV12"),
}

LAYER_TYPES: Mapping[str, frozenset[int]] = {
    name: frozenset(number for first, last in ranges for number in range(first, last + 1))
    for ranges, names in _TABLE.items()
    for name in names.split()
}
