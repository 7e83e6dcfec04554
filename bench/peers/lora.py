"""The step of bench/lora.cpp in Python: forward, loss, backward and AdamW of a GPT-2, all weights or PEFT's adapters.
Needs the packages of cmake/model-packages.txt (`./dev check --peers`).

  a round: time full|lora STEPS      milliseconds a step
           memory full|lora          MiB of tensors: held between steps, plus the peak of one above it
"""
import os
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(os.environ["LEVIN_PEERS"]).parent / "models-python"))

from rounds import serve  # noqa: E402
import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

BATCH, TOKENS, VOCAB = 2, 128, 8192
CONFIG = dict(vocab_size=VOCAB, n_positions=TOKENS, n_embd=640, n_layer=8, n_head=10, resid_pdrop=0.0, embd_pdrop=0.0,
              attn_pdrop=0.0, use_cache=False)
IDS = torch.randint(VOCAB, (BATCH, TOKENS + 1), generator=torch.Generator().manual_seed(0))


class Work:
    def __init__(self, way):
        self.model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**CONFIG)).train()
        if way == "lora":
            self.model = peft.get_peft_model(self.model, peft.LoraConfig(
                r=8, lora_alpha=16, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True))
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
        self.step()

    def step(self):
        self.optimizer.zero_grad()
        logits = self.model(input_ids=IDS[:, :-1]).logits
        F.cross_entropy(logits.flatten(0, 1), IDS[:, 1:].flatten()).backward()
        self.optimizer.step()

    def milliseconds(self, steps):
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        return (time.perf_counter() - start) * 1000 / steps

    def mib(self):
        self.optimizer.zero_grad()
        tensors = [*self.model.parameters(), *self.model.buffers()]
        for state in self.optimizer.state.values():
            tensors += [value for value in state.values() if torch.is_tensor(value)]
        held = sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as records:
            self.step()
        events = [event for event in records.profiler.kineto_results.events() if event.name() == "[memory]"]
        now = most = 0
        for event in sorted(events, key=lambda event: event.start_ns()):
            now += event.nbytes()
            most = max(most, now)
        return (held + most) / 2**20


WORK = {way: Work(way) for way in ("full", "lora")}


def run(words):
    return WORK[words[1]].milliseconds(int(words[2])) if words[0] == "time" else WORK[words[1]].mib()


serve(run)
