"""How each runtime uses the variants that are there: the blocks of code of the index, which tests execute."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from string import Template

from cabochon.matrix.present import Package
from cabochon.matrix.variants import EPCONTEXT, IR

__all__ = ["Usage", "usages"]

_PREFERRED = (
    "Q4_K_M/default",
    "Q8/default",
    "f16/default",
    "f32/default",
    "f16/onnx-standard",
    "f32/onnx-standard",
)
_BROWSER = ("Q4_K_M/webgpu", "f16/webgpu", "Q8/webgpu", "f32/webgpu")
_CUDA = ("Q4_K_M/cuda", "f16/cuda", "bf16/cuda", "Q8/cuda", "NF4/cuda")

_QUESTION = "Why is the sky blue?"
_CABOCHON = Template("""\
import cabochon

model = cabochon.load("$folder")
said = [{"role": "user", "content": "$question"}]
print(model.generate(said, max_new_tokens=64).text)""")
_PICTURE = Template("""\
import cabochon

model = cabochon.load("$folder")
picture, question = {"type": "image", "image": "photo.jpg"}, {"type": "text", "text": "What is this?"}
print(model.generate([{"role": "user", "content": [picture, question]}], max_new_tokens=64).text)""")
_ONNXRUNTIME = Template("""\
import numpy as np
import onnxruntime as ort
from tokenizers import Tokenizer

TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64}


def empty(port):  # nothing was said before, and nothing is shown
    return np.zeros([1 if n == "batch" else 0 if isinstance(n, str) else n for n in port.shape], TYPES[port.type])


def run(graph, given):
    session = ort.InferenceSession(f"$folder/{graph}model.onnx", providers=["CPUExecutionProvider"])
    given = {port.name: given.get(port.name, empty(port)) for port in session.get_inputs()}
    return dict(zip([port.name for port in session.get_outputs()], session.run(None, given)))


tokenizer = Tokenizer.from_file("$folder/tokenizer.json")
ids = np.array([tokenizer.encode("$question").ids])  # [1, S]
given = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
$run
# The next token. To go on: present.* of one step are past_key_values.* of the next.
print(tokenizer.decode([int(found["logits"][0, -1].argmax())]))""")
_RUNS = {True: 'found = run("decoder/", given | run("embedding/", given))', False: 'found = run("", given)'}
_GENAI = Template("""\
import onnxruntime_genai as og

model = og.Model("$folder")
tokenizer, parameters = og.Tokenizer(model), og.GeneratorParams(model)
parameters.set_search_options(max_length=128)
generator = og.Generator(model, parameters)
$prompt
while not generator.is_done():
    generator.generate_next_token()
print(tokenizer.decode(generator.get_sequence(0)))""")
_PROMPTS = {
    False: 'generator.append_tokens(tokenizer.encode("Why is the sky blue?"))',
    True: 'generator.set_inputs(model.create_multimodal_processor()("Why is the sky blue?", images=None))',
}
_CUDA_CODE = Template("""\
import onnxruntime_genai as og  # of onnxruntime-genai-cuda: genai_config.json asks for CUDA

model = og.Model("$folder")  # and on as above""")
_IR = Template("""\
import openvino as ov

decoder = ov.Core().compile_model("$graph/openvino_model.xml", "CPU")  # or "GPU", "NPU"
print([port.any_name for port in decoder.inputs])""")
_EPCONTEXT = Template("""\
import onnxruntime as ort
import onnxruntime_ep_openvino as plugin

ort.register_execution_provider_library("openvino", plugin.get_library_path())
options = ort.SessionOptions()
devices = [device for device in ort.get_ep_devices() if device.ep_name == plugin.get_ep_name()]
options.add_provider_for_devices(devices[:1], {})
session = ort.InferenceSession("$graph/model.onnx", options)""")


@dataclass(frozen=True)
class Usage:
    """One runtime. `blocks`: (language, code), executed by the tests but where `said` says otherwise."""

    title: str
    said: str
    blocks: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """As Markdown."""
        fenced = [f"```{language}\n{code}\n```" for language, code in self.blocks]
        return "\n\n".join([f"### {self.title}", self.said, *fenced])


def usages(packages: Iterable[Package]) -> Iterator[Usage]:
    """Of the runtimes that have a variant here."""
    found = {package.folder: package for package in packages}
    if package := _first(found, _PREFERRED):
        yield _cabochon(package)
        yield _onnxruntime(package)
        yield _genai(package)
    if package := _first(found, _CUDA):
        yield Usage(
            "CUDA",
            "`pip install onnxruntime-genai-cuda` for the `*/cuda` variants. Compiled only by the tests, which have no "
            "such device; they run the graphs on the CPU.",
            (("python", _CUDA_CODE.substitute(folder=package.decodes)),),
        )
    if package := _first(found, _BROWSER):
        yield _browser(package)
    if package := found.get(IR):
        yield _openvino(package)
    if package := found.get(EPCONTEXT):
        yield Usage(
            "OpenVINO's execution provider of ONNX Runtime",
            f"`pip install -r {EPCONTEXT}/runtime-requirements.txt`, where there is a device that the provider knows. "
            "Compiled only by the tests, which have none.",
            (("python", _EPCONTEXT.substitute(graph=_graph(package))),),
        )


def _first(found: dict[str, Package], folders: Iterable[str]) -> Package | None:
    return next((found[folder] for folder in folders if folder in found), None)


def _graph(package: Package) -> str:
    return f"{package.decodes}/decoder" if package.full else package.decodes


def _cabochon(package: Package) -> Usage:
    command = (
        f'$ pip install cabochon\n$ cabochon run {package.folder} --chat "{_QUESTION}" --max-new-tokens 64'
    )
    blocks = [
        ("console", command),
        ("python", _CABOCHON.substitute(folder=package.folder, question=_QUESTION)),
    ]
    if package.full:
        blocks.append(("python", _PICTURE.substitute(folder=package.folder)))
    drafter = " The drafter of a pair is used by itself." if package.pair else ""
    return Usage("cabochon", f"Any variant whose kernels the machine has.{drafter}", tuple(blocks))


def _onnxruntime(package: Package) -> Usage:
    code = _ONNXRUNTIME.substitute(folder=package.decodes, question=_QUESTION, run=_RUNS[package.full])
    return Usage("ONNX Runtime by itself", "`pip install onnxruntime tokenizers`", (("python", code),))


def _genai(package: Package) -> Usage:
    code = _GENAI.substitute(folder=package.decodes, prompt=_PROMPTS[package.full])
    return Usage(
        "ONNX Runtime GenAI",
        "`pip install onnxruntime-genai` for the `*/default` variants, and for `*/cuda` that of the next section.",
        (("python", code),),
    )


def _browser(package: Package) -> Usage:
    return Usage(
        "A browser",
        "Writes a page that chats with the package; any web server serves it. Without `--out` cabochon does, on this "
        "machine.",
        (("console", f"$ cabochon web {package.folder} --out site"),),
    )


def _openvino(package: Package) -> Usage:
    said = "`pip install 'cabochon[openvino]'`; the second block needs `openvino` alone."
    blocks = (
        ("python", _CABOCHON.substitute(folder=package.folder, question=_QUESTION)),
        ("python", _IR.substitute(graph=_graph(package))),
    )
    return Usage("OpenVINO", said, blocks)
