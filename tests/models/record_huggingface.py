"""Records tests/models/data: tiny models with random weights as transformers writes them, and what it computes with them
(peer.safetensors). Needs the packages of cmake/model-packages.txt:

  PYTHONPATH=~/.cache/levin/models-python:~/.cache/levin/peers-2.11.0 python3 tests/models/record_huggingface.py
"""

import pathlib
import shutil

import torch
import transformers as hf
from safetensors.torch import save_file

DATA = pathlib.Path(__file__).parent / "data"
ENCODER = dict(vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
               max_position_embeddings=12, initializer_range=0.4)
DECODER = dict(vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
               intermediate_size=12, initializer_range=0.4, pad_token_id=0, bos_token_id=1, eos_token_id=2)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=8)
MODELS = {
    "bert": hf.BertForSequenceClassification(hf.BertConfig(**ENCODER, num_labels=3)),
    "bert_mlm": hf.BertForMaskedLM(hf.BertConfig(**ENCODER)),
    "roberta": hf.RobertaForSequenceClassification(hf.RobertaConfig(**ENCODER, num_labels=3)),
    "gpt2": hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=20, n_embd=8, n_layer=2, n_head=2, n_positions=12,
                                             initializer_range=0.4, pad_token_id=0, bos_token_id=1, eos_token_id=2)),
    "llama": hf.LlamaForCausalLM(hf.LlamaConfig(**DECODER, rope_parameters=LLAMA3)),
    "mistral": hf.MistralForCausalLM(hf.MistralConfig(**DECODER, sliding_window=3)),
    "qwen3": hf.Qwen3ForCausalLM(hf.Qwen3Config(**DECODER, head_dim=4, tie_word_embeddings=True)),
    "vit": hf.ViTForImageClassification(hf.ViTConfig(hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
                                                     intermediate_size=12, image_size=8, patch_size=4,
                                                     initializer_range=0.4, num_labels=3)),
}


def main():
    for name, model in MODELS.items():
        folder = DATA / name
        shutil.rmtree(folder, ignore_errors=True)
        generator = torch.Generator().manual_seed(len(name))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
        model.eval().save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        if name == "vit":
            inputs = {"pixel_values": torch.randn(2, 3, 8, 8, generator=generator)}
        else:
            inputs = {"input_ids": torch.randint(3, 20, (2, 8), generator=generator),
                      "attention_mask": torch.tensor([[1] * 8, [1] * 5 + [0] * 3])}
            inputs["input_ids"][1, 5:] = model.config.pad_token_id
        with torch.no_grad():
            logits = model(**inputs).logits
        save_file({**inputs, "logits": logits.contiguous()}, folder / "peer.safetensors")


torch.manual_seed(0)
main()
