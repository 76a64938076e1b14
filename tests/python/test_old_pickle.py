"""An optimizer that was pickled before modules were renamed loads, and its steps continue."""
import base64
import pickle
import unittest
import zlib

import torch
from case import Case

import optc.torch

# pickle.dumps of optc.torch.AdamW([p], lr=0.5) after one step of p = [1, -2, 3] with the gradient
# [0.5, 0.25, -1], compressed. It names optc.torch._keys.Keys.
OLD = """
eNrdV02QG0cV1v7anthOCMGOgZDG/GRka2X97Hq1m6w3gcQbkK04MuABshlaMy31xKOZeTM9Wq/DkA2J5FVwwk8CCRB+iwO5cKeK
XHavwIEbN+BMFXDiwoHXPZJWW2yqUsXNOox6Xn/d/d733rz3emvS8gNh5YUfWlx7zKbtaxpksi/CRAKTunE4k8nYrEljV0QwlcC0
bkyiyA1hZm31Lxn1M2bw0WCCRjC7tvr338vfH9ZW//HvP/75xK2zPThkTCGABREcXrvwxOZrfyvcXjaOomiDOS0uTJtZdBOOrK2+
fPOva7+573njEM7RdtQKqQ1aX+nQpjectnOTwV19Nd30Q0YtDkdrhoavFg1EHNKGy+BY3zgulXaaTRYyTzhKeryvtGzGEbPh7ppx
Qtll+XHgMtvcp8g927HCRoIKBh+wLN91mSUc34u0ARW2YwkN7rVMsxE7rnA809RS2Qe7cF8dPmQpOvNmLBw30syQSZxtBjSkbSZY
qMGJ94AI5kV+aHZKGpzUB5gI/2iLaabrU9tshn7bbGwKFmlwv2VaPqodacyTAw1OGScnMpmdrcmdVzR393c7b1/c/S15bufXV07l
UXh5950p+Z9ARjfuQSOD0Bc+Wmh2WBihiTAhIcYx6WNHCJeZzLMd6sHkzrZiWmwGzIzQE8NwUFRxPxQwU51UnnY8AbPVaWNabuJ7
LThUnY5jeayufDcwBzKpedpFNEtcHdgIE8p9S/PFhflKZaG8UKgUz0O6sRXEMFWdqgmYflputw6Zg8ATND+VRmZm51fB7rsXss88
uLu1opmPwoeNWakURZcV4SM9+GgdHujCx+rwYDVTneoCqU504eP9fT5/KrQxkOzHlX9PZ+vwCQGfrMOntrl8+fQteKgOegJZXRkc
CRbAGX5S5/fzU8axO8YXS4XKYrlQma/s88XEwb7YA6MvJjLD387WKpzlSHuuDnNdyNfhXDWTzfYVkQUBxTqUlFbsRmDSTgvKQx4f
uIN4PL9YKVTKpfcT03vgsZjefXX39qUV+dy9/Uj6t/MuzEteF+pwvguLdaik4bwkw3k55fdhAY/UYUUZPODXjAAuDCk+eSeFaqU0
Xy6ff38UD8FjFPv37ry0JB8V+ViGVUnuo3V4rAufqcNnU3Ifl+Q+kZJ7UcBaHZ6MI1XXVJo3WyFWlwg+tw6fT6Cqq8yjZiK4tA6X
uU75Xg3ls/wQ3yuPfK8acq3P7+rzozV+rM+P9/ndNY4ViioCzTDG2lYbq+B58zrbjLSqfMBTWMavJPD0IDMFzIK6WkexzG/AVeUZ
VeZM6R/4Qk0BNzgV8MUEvpSuE+yGgGs1tXDDEdwEw5Aqw5dVZd4IaRBgFMBXEviqkmBw2LGF/cIztZhfMyiyGjIszx5BPVUVD8nz
GiEe1kJCVshppc7pHIosR6SiS37ELe64fodQzyZPxgKrJikViks5QkPD6SwXF4vFfGGhWCg+TAbNwjKpM9t2CBOEunmJrozQS4X5
fGGpVF5U59i+RdQ5suEh0iqS9gBE9QDkOgtwD/SWILLcEsEZkSc42FCoDTjyFeIG0g5CXDUkRTZXzpG24+FbgSQ5Ipuiopoq5JdG
M1Lu+hs4LA5BpSFo6b1g6hzsoYYHVfYdNN7ADBGlcQQuVw/pASxqCjNgDcdN6kYsBahwUNNtfKKr/ChHOmND7MSGb8MVLJB7xJ4q
mHpWqSpFAZmT1JzZr94ZEiiE3N9lYaC3c6SVQyPnUr7S9Z3hbAdncc0YopQiXN+iLpGmdNS70xxZhO7ylIwM9cWnLodoQHYwo1ai
KGXWs9X/3JzydcOhEbH8MBw0ARhFbBAE+FE/FC2TDT+8zmzix4L4nsVyxPMxeJyOY6O0sUmoIAyT4yZhLmtj1OwjRUdWzhF9ZDJ5
lohsFq1sSzHKz5EIQjEClEYAJY6y5KyMBWkJKp7TEg3W1bcaskjAszWV9kJ/A0x+VeXOgdvhawnQtMJ6InQwGTfWwdrrW2xqHJGZ
ODJbrt+gLrB+OsmYB8197W7EsBtqrQMfSyiOKgADJ6yooILnenCddsGtQ1tlwJB6LTzXS8DXRxeHIgT63s1h2C6srf4zHfS3BcAI
XIJQH90uDgZHoxuH0Ec5dQ/6whg0Ht5nOrjplcblP/3rnf8cjNz43zvLDX2Upg9esxkPblCWixFkw80E9l9vvt6PlGEyF0aQJPAN
3ZANUxte4GU16sAWv6C8IIMVXlSlC0fmWBH/ZqwAMvXDS+vwss5n+EwXuj3o8dkxlm+Nkbjdg34PXuGH+eEufKsHt/kRfqQLr/bg
NaZUtLjvWKjUtxP4Tqqzi18FCr6bwPd0fovPVjM9eL0Lb/BtHE/04Ptd+EGqSQOB8GYCb+n/R42LG+pYU6Ykx4IfpjdBvCm5TG7/
o/QmaDpeEGOx+XECb6eACPMCxYL0kwR+qkqcKT/WKKAWg59VM4NNsfVAh/x8HX6B5RwN+SWNG/n/AkBTiuI=
"""


class OldPickle(Case):
    def test_loads_and_steps(self):
        data = zlib.decompress(base64.b64decode(OLD))
        self.assertIn(b"optc.torch._keys", data)
        old = pickle.loads(data)
        p = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
        new = optc.torch.AdamW([p], lr=0.5)
        q = old.param_groups[0]["params"][0]
        for opt in (new, new, old):
            for x in (p, q):
                x.grad = torch.tensor([0.5, 0.25, -1.0])
            opt.step()
        self.assertTrue(torch.equal(p, q))
        self.assertEqual(float(old.state[q]["step"]), 2)
        self.assertEqual(type(old), optc.torch.AdamW)


if __name__ == "__main__":
    unittest.main()
