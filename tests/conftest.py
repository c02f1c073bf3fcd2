"""What every test needs: few threads, and torchvision where its compiled operators are missing."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
import torchvision_stand_ins

torch.set_num_threads(min(2, os.cpu_count() or 1))
torchvision_stand_ins.install()
