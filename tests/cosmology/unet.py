"""The U-Net in plain PyTorch, as a user would write it: for parity.py and bench/cosmology_step to compare with."""

import torch
from torch import nn


def smooth_leaky(x):
    middle = -torch.abs(x) ** 3 / 3 + x**2 + 2 * x + 1 / 3
    return torch.where(x < -1, x, torch.where(x < 1, middle, 3 * x)) / 3.5


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv3d(inputs, outputs, 3, stride=stride, padding=1, padding_mode="circular")
        self.bn1 = nn.BatchNorm3d(outputs)

    def forward(self, x):
        return smooth_leaky(self.bn1(self.conv1(x)))


def layer(inputs, outputs, blocks, stride=1):
    return nn.Sequential(*(Block(inputs if i == 0 else outputs, outputs, stride) for i in range(blocks)))


class UNet(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.layer1 = layer(2, f, 2)
        self.layer2 = layer(f, 2 * f, 1, stride=2)
        self.layer3 = layer(2 * f, 2 * f, 2)
        self.layer4 = layer(2 * f, 4 * f, 1, stride=2)
        self.layer5 = layer(4 * f, 4 * f, 2)
        self.deconv1 = nn.ConvTranspose3d(4 * f, 2 * f, 3, stride=2, padding=1, output_padding=1)
        self.deconv_batchnorm1 = nn.BatchNorm3d(2 * f)
        self.layer6 = layer(4 * f, 2 * f, 2)
        self.deconv2 = nn.ConvTranspose3d(2 * f, f, 3, stride=2, padding=1, output_padding=1)
        self.deconv_batchnorm2 = nn.BatchNorm3d(f)
        self.layer7 = layer(2 * f, f, 2)
        self.deconv4 = nn.Conv3d(f, 2, 3, padding=1, padding_mode="circular")

    def forward(self, x):
        whole = self.layer1(x)
        half = self.layer3(self.layer2(whole))
        x = self.layer5(self.layer4(half))
        x = smooth_leaky(self.deconv_batchnorm1(self.deconv1(x)))
        x = self.layer6(torch.cat((x, half), dim=1))
        x = smooth_leaky(self.deconv_batchnorm2(self.deconv2(x)))
        x = self.layer7(torch.cat((x, whole), dim=1))
        return self.deconv4(x)
