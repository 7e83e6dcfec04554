#include "support/torch_pch.h"
