#include "module_pch.h"
