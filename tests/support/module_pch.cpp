#include "support/module_pch.h"
