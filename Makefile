# optc. `make demo` and `make test` do everything on a fresh Debian or Ubuntu; `make help` lists the
# rest.
#
# On machines where nothing can be installed, give these on the command line:
#   LUA_CFLAGS LUA_LIBS CHECK_CFLAGS CHECK_LIBS
#   BLAS_LIBS      any text: no BLAS is installed. optc loads one at run time ($OPTC_BLAS)
# Other settings:
#   CC, HOSTCC     compilers: of the library, and of programs that run during the build
#   EMULATOR       runs programs of CC on this machine if CC is a cross compiler
#                  (tools/RELEASING.md)
#   BUILD          the build folder (default build)
#   PREFIX         for make install (default /usr/local)
#   SAN=1          address and undefined-behaviour sanitizers
#   RULES_FROM     a folder of compiled rules (default BUILD/rules). Another build's folder works if
#                  its compiler is the same.
#   ONLY           IDs of the rules to compile into the library (default: all), for tests
#   V=1            print whole commands instead of one short line per file
# Without -j make runs as many jobs as there are cores (one for `clean`).

BUILD  ?= build
PREFIX ?= /usr/local
HOSTCC ?= $(CC)
PKG    := pkg-config

# A parent make, the command line or the environment may have set the number of jobs.
jobs_set := $(filter -j% --jobserver%,$(MAKEFLAGS) $(shell echo "$$MAKEFLAGS"))$(filter-out 0,$(MAKELEVEL))
ifeq ($(jobs_set)$(filter clean,$(MAKECMDGOALS)),)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif
# $(call say,CC,FILE) before a command prints "CC FILE" instead of the command.
quiet := $(findstring s,$(firstword -$(MAKEFLAGS)))
say = $(if $(V),,@$(if $(quiet),,printf '%-5s %s\n' '$(1)' '$(2)';))

# $(call set_by_user,NAME): not empty if NAME was set on the command line or in the environment
set_by_user = $(filter command line environment,$(origin $(1)))
LUA_CFLAGS   ?= $(shell $(PKG) --cflags lua5.4 2>/dev/null || echo -I/usr/include/lua5.4)
LUA_LIBS     ?= $(shell $(PKG) --libs lua5.4 2>/dev/null || echo -llua5.4 -lm -ldl)
CHECK_CFLAGS ?= $(shell $(PKG) --cflags check 2>/dev/null)
CHECK_LIBS   ?= $(shell $(PKG) --libs check 2>/dev/null || echo -lcheck -lsubunit -lrt -lm -lpthread)

ARCH    := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
OPT     ?= -O2
WARN    := -Wall -Wextra -Wpedantic -Wno-overlength-strings
CFLAGS  ?= -g
ALL_CFLAGS := -std=c11 -D_GNU_SOURCE $(WARN) $(OPT) $(CFLAGS) -fPIC -fvisibility=hidden -ffp-contract=off \
              -fopenmp -I. -Iruntime $(LUA_CFLAGS) -MMD -MP
LDLIBS  := $(LUA_LIBS) -ldl -lm -fopenmp
ifdef SAN
# clang's pointer-overflow check also reports NULL + 0, which empty tensors have. gcc's check does
# not.
SANITIZE   := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer \
              $(if $(findstring clang,$(CC)),-fno-sanitize=pointer-overflow)
ALL_CFLAGS += $(SANITIZE)
LDLIBS     += -fsanitize=address,undefined
endif

# The vector levels of runtime/library/compile/cpu_isa.c.
ISAS := 0
ifeq ($(ARCH),x86_64)
ISAS := 0 1 2
else ifeq ($(ARCH),aarch64)
ISAS := 0 1
endif

GEN_SRC     := $(filter-out gen/base/embed.c,$(wildcard gen/*.c gen/*/*.c))
RUNTIME_SRC := $(filter-out runtime/library/rule/prebuild.c,$(wildcard runtime/core/*/*.c runtime/library/*.c \
                                                                       runtime/library/*/*.c))
TOOLS_SRC   := $(wildcard tools/*.c tools/*/*.c)
TEST_SRC    := $(wildcard tests/unit/*.c tests/harness/*.c)
SPECS       := $(wildcard specs/*.lua)
WRAPPERS    := $(wildcard specs/wrappers/*.lua)
SHARED      := $(wildcard specs/shared/*.lua)
TEMPLATES   := $(wildcard templates/*.h templates/*.txt)
ABI         := $(wildcard gen/abi/*.h)
TUNED       := $(sort $(wildcard runtime/tuned/*.txt))
BUILT_IN    := $(shell sed -n '/ library_[a-z]*\[\]/,/};/p' \
                   runtime/library/rule/spec_find.c | grep -o '[a-z0-9_]*"}' | tr -d '"}')
RULES       := $(or $(ONLY),$(BUILT_IN))

GEN_OBJ     := $(GEN_SRC:%.c=$(BUILD)/obj/%.o) $(addprefix $(BUILD)/obj/,embedded_templates.o embedded_core.o \
                                                                          embedded_specs.o embedded_shared.o)
RUNTIME_OBJ := $(RUNTIME_SRC:%.c=$(BUILD)/obj/%.o) $(BUILD)/obj/builtin_table.o $(BUILD)/obj/embedded_tuned.o
RULES_FROM  ?= $(BUILD)/rules
RULE_OBJ    := $(foreach i,$(ISAS),$(RULES:%=$(RULES_FROM)/%.$(i).o))
LIB_OBJ     := $(GEN_OBJ) $(RUNTIME_OBJ) $(RULE_OBJ)

# `make demo` builds only these rules: the other rules take longer to compile than everything else.
# The command compiles other rules when they are first used. If there is a whole build, `make demo`
# uses it.
DEMO_RULES := adamw adam sgd lion muon
DEMO_OBJ   := $(filter-out %/builtin_table.o,$(GEN_OBJ) $(RUNTIME_OBJ)) \
              $(foreach i,$(ISAS),$(DEMO_RULES:%=$(BUILD)/demo/%.$(i).o)) $(BUILD)/obj/demo_table.o
DEMO       := $(if $(wildcard $(BUILD)/liboptc.a),$(BUILD)/optc,$(BUILD)/demo/optc)

.PHONY: all demo test test-all setup help install clean check-all fuzz bench build-demo build-test
.DELETE_ON_ERROR:
.PRECIOUS: $(BUILD)/obj/%.o
all: $(BUILD)/optc $(BUILD)/liboptc.a $(BUILD)/liboptc.so

demo: setup
	@$(MAKE) --no-print-directory build-demo

test: setup
	@$(MAKE) --no-print-directory build-test

setup:
	@LUA="$(call set_by_user,LUA_LIBS)" CHECK="$(call set_by_user,CHECK_LIBS)" BLAS="$(call set_by_user,BLAS_LIBS)" \
	    CC="$(CC)" PKG="$(PKG)" sh tools/setup.sh

build-demo: $(DEMO)
	@[ -e $(BUILD)/liboptc.a ] || cp $(BUILD)/demo/optc $(BUILD)/optc
	@OPTC=$(BUILD)/optc sh tools/demo.sh

help:
	@echo "make demo       set up, build, compile a spec, show its plan, step tensors"
	@echo "make test       set up, build and run every test (PARTS=…: some of them, tests/part.sh names them)"
	@echo "make test-all   the same without sampling: every rule for every architecture, more random specs"
	@echo "make            build $(BUILD)/optc, liboptc.a and liboptc.so"
	@echo "make bench      speed of AdamW, LAMB, Adafactor and clip + AdamW against the memory bandwidth and torch"
	@echo "make bench-factors  batches of factors, and Shampoo on GPT-2, against NumPy"
	@echo "make bench-gpu  every row of the table of bars on an NVIDIA GPU, against torch"
	@echo "make fuzz       random specs against the evaluator for a long time (SECONDS=600, SEED=…)"
	@echo "make fuzz-emu   random specs and launches on an emulated GPU, bit for bit against the CPU (likewise)"
	@echo "make test-shards  sharded bindings: every rule, number of ranks and cut, bit for bit against one process"
	@echo "make test-html  the report of a race in headless Chromium"
	@echo "make outside-suites SUITE=torch CHECKOUT=DIR   another project's tests run optc.torch's classes"
	@echo "make verify     proves that GPU code stores the bits of its plan: every rule (VERIFY='--type bf16' …)"
	@echo "make faults     every allocation, file call and driver call of every scenario fails once"
	@echo "make hashes     a hash of the results of every rule, type and wrapper, in $(BUILD)/hashes.txt"
	@echo "make logs BASE=COMMIT  what the emulated GPU launches, compared with another commit"
	@echo "make mutants    changes FILES in N places, one at a time: which test notices? (SEED=…)"
	@echo "make test-emu   the GPU suite on an emulated GPU; make test-gpu runs it on a real one"
	@echo "make install    PREFIX=$(PREFIX); make uninstall removes what it wrote"
	@echo "make python     the files of the Python wheel (pip install ./runtime/python runs this)"
	@echo "make clean"

# ---- generated text ----
$(BUILD)/embed: gen/base/embed.c
	@mkdir -p $(@D)
	$(call say,CC,$<)$(HOSTCC) -O1 -o $@ $<

$(BUILD)/embedded_templates.c: $(BUILD)/embed $(TEMPLATES) $(ABI)
	$(call say,EMBED,$@)$(BUILD)/embed embedded_templates templates/ $(TEMPLATES) $(ABI) > $@

# Sources that are pasted into packages: the core and its headers. gen/emit/package_text.c orders
# them by includes.
CORE := $(sort LICENSE $(wildcard runtime/*.h) $(ABI) $(wildcard gen/abi/*.def runtime/core/*/*.h runtime/core/*/*.c))
$(BUILD)/embedded_core.c: $(BUILD)/embed $(CORE)
	$(call say,EMBED,$@)$(BUILD)/embed embedded_core "" $(CORE) > $@

$(BUILD)/embedded_specs.c: $(BUILD)/embed $(SPECS) $(WRAPPERS)
	$(call say,EMBED,$@)$(BUILD)/embed embedded_specs specs/ $(SPECS) $(WRAPPERS) > $@

$(BUILD)/embedded_shared.c: $(BUILD)/embed $(SHARED)
	$(call say,EMBED,$@)$(BUILD)/embed embedded_shared specs/ $(SHARED) > $@

$(BUILD)/embedded_tuned.c: $(BUILD)/embed $(TUNED)
	$(call say,EMBED,$@)$(BUILD)/embed embedded_tuned runtime/tuned/ $(TUNED) > $@

# Emits the C code of the library's rules. It links the compiler and the search for specs, not the
# rules themselves.
PREBUILD_OBJ := $(GEN_OBJ) \
    $(addprefix $(BUILD)/obj/runtime/,$(addprefix library/rule/,spec_find.o other_names.o prebuild.o) \
                                      library/compile/cpu_isa.o core/matrix/cpu_level.o)
$(BUILD)/prebuild: $(PREBUILD_OBJ)
	$(call say,LINK,$@)$(CC) -o $@ $(PREBUILD_OBJ) $(LDLIBS)

$(BUILD)/rules/builtin_table.c: $(BUILD)/prebuild
	@mkdir -p $(@D)
	$(call say,RULES,$(@D))$(EMULATOR) $(BUILD)/prebuild $(@D) $(ONLY)

$(BUILD)/demo/builtin_table.c: $(BUILD)/prebuild
	@mkdir -p $(@D)
	$(call say,RULES,$(@D))$(EMULATOR) $(BUILD)/prebuild $(@D) $(DEMO_RULES)

$(RULES:%=$(BUILD)/rules/%.c): $(BUILD)/rules/builtin_table.c ;
$(DEMO_RULES:%=$(BUILD)/demo/%.c): $(BUILD)/demo/builtin_table.c ;

define rule_template
$(BUILD)/%.$(1).o: $(BUILD)/%.c
	$$(call say,CC,$$< level $(1))$(CC) $$$$($(EMULATOR) $(BUILD)/prebuild --flags $(1)) -fvisibility=hidden \
	    -DOPTC_MODULE=optc_builtin_$$(*F)_$(1) -c -o $$@ $$<
endef
$(foreach i,$(ISAS),$(eval $(call rule_template,$(i))))

# ---- objects ----
# The flags that every source is compiled with, for tests that only parse sources.
# For editors and clangd: how each source is compiled.
.PHONY: compile_commands.json
compile_commands.json:
	@printf '%s\n' $(sort $(GEN_SRC) $(RUNTIME_SRC) $(TOOLS_SRC) $(wildcard tests/*/*.c)) | \
	    awk -v dir="$(CURDIR)" -v cc='$(CC) $(ALL_CFLAGS)' 'BEGIN { gsub(/["\\]/, "\\\\&", cc); print "[" } \
	        { printf "%s{\"directory\": \"%s\", \"file\": \"%s\", \"command\": \"%s -c %s\"}", \
	          (NR > 1 ? ",\n" : ""), dir, $$1, cc, $$1 } END { print "\n]" }' > $@
	@echo "$@: $$(grep -c '"file"' $@) sources"

.PHONY: print-flags
print-flags:
	@echo '$(filter-out -MMD -MP,$(ALL_CFLAGS)) $(CHECK_CFLAGS)'

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(ALL_CFLAGS) -c -o $@ $<

$(BUILD)/obj/embedded_%.o: $(BUILD)/embedded_%.c
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(ALL_CFLAGS) -c -o $@ $<

$(BUILD)/obj/builtin_table.o: $(RULES_FROM)/builtin_table.c
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(ALL_CFLAGS) -c -o $@ $<

$(BUILD)/obj/demo_table.o: $(BUILD)/demo/builtin_table.c
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(ALL_CFLAGS) -c -o $@ $<

$(BUILD)/demo/optc: $(TOOLS_SRC:%.c=$(BUILD)/obj/%.o) $(DEMO_OBJ)
	$(call say,LINK,$@)$(CC) -o $@ $^ $(LDLIBS)

$(BUILD)/liboptc.a: $(LIB_OBJ)
	@rm -f $@
	$(call say,AR,$@)ar rcs $@ $(LIB_OBJ)

$(BUILD)/liboptc.so: $(LIB_OBJ)
	$(call say,LINK,$@)$(CC) -shared -Wl,-soname,liboptc.so.0 -o $@ $(LIB_OBJ) $(LDLIBS)
	@ln -sf liboptc.so $@.0                    # the soname, for programs that are linked against this folder

$(BUILD)/optc: $(TOOLS_SRC:%.c=$(BUILD)/obj/%.o) $(BUILD)/liboptc.a
	$(call say,LINK,$@)$(CC) -o $@ $^ $(LDLIBS)

# Files of the Python wheel (runtime/python/build_wheel.py): stripped; they find Lua and libgomp in
# their own folder.
BESIDE := -s -Wl,-rpath,'$$ORIGIN'
.PHONY: python
python: $(BUILD)/python/liboptc.so $(BUILD)/python/optc
$(BUILD)/python/liboptc.so: $(LIB_OBJ)
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(CC) -shared -Wl,-soname,liboptc.so.0 $(BESIDE) -o $@ $(LIB_OBJ) $(LDLIBS)

$(BUILD)/python/optc: $(TOOLS_SRC:%.c=$(BUILD)/obj/%.o) $(BUILD)/liboptc.a
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(CC) $(BESIDE) -o $@ $^ $(LDLIBS)

# ---- tests ----
# TEST_OPT: flags of the tests' objects, in addition to OPT. At -O2 the tests' code takes as long to
# compile as the library, at -O0 a third of that. HOT_TESTS, which compute for long, get TEST_HOT.
# With SAN=1 only the library is instrumented: the heap checks see the tests' blocks anyway. The
# tests are compiled with -DOPTC_SANITIZED instead.
TEST_OPT ?= $(if $(filter -O2,$(OPT)),-O0 -g1)
TEST_HOT ?= $(if $(filter -O2,$(OPT)),-O1 -g1)
HOT_TESTS := $(patsubst %.c,%,$(wildcard tests/harness/*.c tests/hashes/*.c)) \
             $(addprefix tests/unit/test_,codes code_quality descent fuzz math ops refs squares) \
             $(addprefix tests/gpu/,device_side gpu_product_program gpu_product_check test_gpu_alike test_gpu_columns \
                                    test_gpu_polar test_gpu_products test_gpu_triangles)
$(BUILD)/obj/tests/%.o: ALL_CFLAGS += $(CHECK_CFLAGS) $(TEST_OPT)
$(HOT_TESTS:%=$(BUILD)/obj/%.o): ALL_CFLAGS += $(TEST_HOT)
ifdef SAN
$(BUILD)/obj/tests/%.o: ALL_CFLAGS := $(filter-out $(SANITIZE),$(ALL_CFLAGS)) $(CHECK_CFLAGS) $(TEST_OPT) \
                                      -DOPTC_SANITIZED
endif
# TESTS_FROM: a folder of tests' objects (default BUILD/obj). With SAN=1 another build's objects
# work, except those that depend on OPTC_SANITIZED.
TESTS_FROM ?= $(BUILD)/obj
TEST_OBJ   := $(patsubst %.c,$(TESTS_FROM)/%.o,$(TEST_SRC))
ifdef SAN
SAN_TESTS  := $(addprefix tests/unit/,test_sandbox.c test_calls.c)
TEST_OBJ   := $(patsubst %.c,$(TESTS_FROM)/%.o,$(filter-out $(SAN_TESTS),$(TEST_SRC))) \
              $(SAN_TESTS:%.c=$(BUILD)/obj/%.o)
endif
FAKES := $(foreach k,versioned versioned11 symbols,$(BUILD)/fake/$(k)/libcuda.so.1) \
         $(foreach k,nvrtc nvrtc_old,$(BUILD)/fake/$(k)/libnvrtc.so.13) $(BUILD)/fake/crowd.so \
         $(BUILD)/fake/libfakeblas.so
# Functions that tests replace: allocations (test_emit.c counts them and lets them fail), the
# runtime's clocks (test_tune_cpu.c), barriers and parallel regions (test_thread_barrier.c counts
# them), fsync (test_checkpoint_files.c lets it fail), Check's messages about assertions that hold
# (assert_points.c).
WRAPPED := $(foreach f,malloc calloc realloc free now_ms waited_ms barrier_wait GOMP_parallel fsync _mark_point,\
                       -Wl,--wrap=$(f))
$(BUILD)/run-tests: $(TEST_OBJ) $(BUILD)/liboptc.a | $(FAKES)
	$(call say,LINK,$@)$(CC) -o $@ $^ $(WRAPPED) $(CHECK_LIBS) $(LDLIBS)

# Fake drivers and NVRTC libraries for tests; the files of tests/cuda describe them.
FAKE_CFLAGS := -std=gnu11 -Wall -Wextra -Wno-strict-prototypes -O1 -fPIC -fvisibility=hidden -I.
$(BUILD)/fake/%/libcuda.so.1: tests/cuda/fake_driver.c runtime/library/compile/nvrtc.h runtime/core/cuda/cuda_driver.h
	@mkdir -p $(@D)
	$(call say,CC,$< for $@)$(CC) $(FAKE_CFLAGS) -DFAKE_$* -c -o $(@D)/driver.o $<
	$(call say,CC,$< for $@)$(CC) $(FAKE_CFLAGS) -DFAKE_$* -DREST -c -o $(@D)/rest.o $<
	$(call say,LINK,$@)$(CC) -shared -Wl,-soname,libcuda.so.1 -o $@ $(@D)/driver.o $(@D)/rest.o

$(BUILD)/fake/%/libnvrtc.so.13: tests/cuda/fake_nvrtc.c runtime/library/compile/nvrtc.h runtime/core/cuda/cuda_driver.h
	@mkdir -p $(@D)
	$(call say,CC,$< for $@)$(CC) $(FAKE_CFLAGS) $(if $(filter nvrtc_old,$*),-DFAKE_old) \
	    -shared -Wl,-soname,libnvrtc.so.13 -o $@ $<

$(BUILD)/fake/crowd.so: tests/preload/crowd.c
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) -std=gnu11 -Wall -Wextra -O1 -fPIC -shared -o $@ $< -ldl

$(BUILD)/fake/libfakeblas.so: tests/preload/fake_blas.c
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) -std=gnu11 -Wall -Wextra -O1 -fPIC -shared -o $@ $<

# The command's objects for programs with a main of their own.
COMMAND := $(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out tools/main.c,$(TOOLS_SRC))) $(BUILD)/obj/tools/main.renamed.o
$(BUILD)/obj/tools/main.renamed.o: $(BUILD)/obj/tools/main.o
	@objcopy --redefine-sym main=optc_main $< $@

# Release figures (tests/bench/release): optc bench with bars, suites and other rivals.
$(BUILD)/bench-release: $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/bench/release/*.c)) $(COMMAND) $(BUILD)/liboptc.a
	$(call say,LINK,$@)$(CC) -o $@ $^ $(LDLIBS)

# Scenarios in which every call fails once (tests/faults): the calls that are replaced.
FAULTY := fopen fdopen fread fwrite fgets fflush read write pread rename mkdir mkdtemp mkostemp stat fstat lstat \
          access statvfs realpath opendir fsync chmod dlopen memfd_create pipe2 fork posix_spawn close fclose open fcntl
$(BUILD)/faults: $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/faults/*.c)) $(COMMAND) $(BUILD)/liboptc.a
	$(call say,LINK,$@)$(CC) -rdynamic -o $@ $^ $(FAULTY:%=-Wl,--wrap=%) $(LDLIBS)

# Compiles every rule for every architecture that NVRTC supports.
$(BUILD)/compile-all: $(BUILD)/obj/tests/cuda/compile_all.o $(BUILD)/liboptc.a
	$(call say,LINK,$@)$(CC) -o $@ $^ $(LDLIBS) -lpthread

EMULATED := $(addprefix $(BUILD)/emu/,libcuda.so.1 libnvrtc.so.13 libnvfatbin.so.13 libcublas.so.13 libcusolver.so.12 \
                                     libnccl.so.2 emu_threads.h.gch)
build-test: all $(BUILD)/run-tests $(BUILD)/gpu-test $(BUILD)/faults $(BUILD)/bench-release $(EMULATED) $(BUILD)/compile-all
	@BUILD=$(BUILD) CC="$(CC)" MAKE="$(MAKE)" sh tests/run.sh $(PARTS)

# Without sampling: every rule for every architecture, three packages for all of them, more random
# specs.
test-all: setup
	@OPTC_ALL=1 OPTC_FUZZ_SPECS=100 $(MAKE) --no-print-directory build-test

SECONDS ?= 600
fuzz: all $(BUILD)/run-tests
	@OPTC_FUZZ_SECONDS=$(SECONDS) OPTC_FUZZ_SEED=$(SEED) CK_RUN_SUITE=fuzz CK_DEFAULT_TIMEOUT=0 $(BUILD)/run-tests

# Tests of torch, timm and others with optc.torch's classes in place of theirs (tests/README.md).
.PHONY: outside-suites
outside-suites: all
	@OPTC_LIBRARY=$(CURDIR)/$(BUILD)/liboptc.so PYTHONPATH=runtime/python:tests/python \
	    $${OPTC_PYTHON:-python3} tests/python/outside_suites.py $(SUITE) $(CHECKOUT)

# Every rule with every number of ranks and every cut; `make test` runs a sample.
.PHONY: test-shards
test-shards: all $(BUILD)/run-tests
	@mkdir -p $(BUILD)/test-cache && chmod 700 $(BUILD)/test-cache
	@OPTC_SHARDS=all OPTC_TEST_CACHE="$(abspath $(BUILD))/test-cache" CK_RUN_SUITE=shards $(BUILD)/run-tests

# Every rule of the library; prints what differs and what is not checked. Needs NVRTC, no GPU.
.PHONY: verify
verify: all
	@BUILD=$(BUILD) sh tests/parts/verify_library.sh $(VERIFY)

# The report of a race in a browser, at the width of a phone and of a desktop; needs chromium.
.PHONY: test-html
test-html: all
	@OPTC="$(abspath $(BUILD))/optc" sh tests/parts/html.sh

.PHONY: faults
faults: $(BUILD)/faults $(EMULATED)
	@BUILD=$(BUILD) sh tests/parts/faults.sh all

# Hashes of every rule's results, for comparing two versions (tests/hashes). -O1 gives the same bits
# in a third of the time.
$(BUILD)/hash-results: $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/hashes/*.c)) $(BUILD)/liboptc.a
	$(CC) -o $@ $^ $(LDLIBS) -lpthread

.PHONY: hashes
HASH_FLAGS ?=
hashes: $(BUILD)/hash-results
	@mkdir -p $(BUILD)/hashes && printf '#!/bin/sh\nexec %s "$$@" -O1\n' "$(CC)" > $(BUILD)/hashes/cc
	@chmod +x $(BUILD)/hashes/cc
	@OPTC_CACHE="$(abspath $(BUILD))/hashes/cache" OPTC_CC="$(abspath $(BUILD))/hashes/cc" \
	    $(BUILD)/hash-results $(HASH_FLAGS) > $(BUILD)/hashes/unsorted
	@LC_ALL=C sort $(BUILD)/hashes/unsorted > $(BUILD)/hashes.txt
	@echo "$(BUILD)/hashes.txt: $$(wc -l < $(BUILD)/hashes.txt) results"

# What this tree launches on the emulated GPU, against BASE (tests/log). CASES: names of cases and
# rules; all without.
.PHONY: logs
BASE ?= HEAD
logs: $(BUILD)/liboptc.a $(EMULATED)
	@BUILD=$(BUILD) CC="$(CC)" MAKE="$(MAKE)" sh tests/parts/launch_log.sh $(BASE) $(CASES)

# Changes FILES in one place at a time; which test notices? The first run measures which test
# executes which line.
.PHONY: mutants
mutants: $(BUILD)/run-tests $(BUILD)/gpu-test $(EMULATED)
	@BUILD=$(BUILD) CC="$(CC)" FLAGS="$(filter-out -g -MMD -MP,$(ALL_CFLAGS))" TESTS="$(TEST_OBJ)" \
	    GPU_TESTS="$(GPU_TEST_OBJ)" WRAPPED="$(WRAPPED)" LIBS="$(CHECK_LIBS) $(LDLIBS)" \
	    sh tests/parts/mutate_source.sh $(or $(SEED),1) $(or $(N),60) $(FILES)

bench: all
	$(BUILD)/optc bench --against torch

.PHONY: bench-factors
bench-factors: all
	@sh tests/bench/factors.sh $(BUILD)

# ---- install ----
DEST := $(DESTDIR)$(PREFIX)
VERSION := $(shell sed -n 's/.*OPTC_VERSION "\(.*\)"/\1/p' runtime/optc.h)
FILL_IN := sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' -e 's|@LIBS@|$(LDLIBS)|'
# The manual page and completion, made by the command from its tables of options.
HELP := share/man/man1/optc.1 share/bash-completion/completions/optc share/zsh/site-functions/_optc
install: all
	install -d "$(DEST)/bin" "$(DEST)/lib/pkgconfig" "$(DEST)/lib/cmake/optc" "$(DEST)/include" \
	    "$(DEST)/share/optc/specs/wrappers" "$(DEST)/share/optc/specs/shared" "$(DEST)/share/optc/templates"
	install -m 755 $(BUILD)/optc "$(DEST)/bin/optc"
	install -m 644 $(BUILD)/liboptc.a "$(DEST)/lib/liboptc.a"
	install -m 755 $(BUILD)/liboptc.so "$(DEST)/lib/liboptc.so.0"
	ln -sf liboptc.so.0 "$(DEST)/lib/liboptc.so"
	install -m 644 runtime/*.h "$(DEST)/include"
	install -m 644 $(SPECS) $(wildcard specs/*.md) "$(DEST)/share/optc/specs"
	install -m 644 $(WRAPPERS) "$(DEST)/share/optc/specs/wrappers"
	install -m 644 $(SHARED) "$(DEST)/share/optc/specs/shared"
	install -m 644 $(TEMPLATES) "$(DEST)/share/optc/templates"
	install -m 644 LICENSE "$(DEST)/share/optc/LICENSE"
	install -d $(addprefix "$(DEST)"/,$(dir $(HELP)))
	$(EMULATOR) $(BUILD)/optc help --man > "$(DEST)/$(word 1,$(HELP))"
	$(EMULATOR) $(BUILD)/optc help --completion bash > "$(DEST)/$(word 2,$(HELP))"
	$(EMULATOR) $(BUILD)/optc help --completion zsh > "$(DEST)/$(word 3,$(HELP))"
	$(FILL_IN) tools/optc.pc.in > "$(DEST)/lib/pkgconfig/optc.pc"
	$(FILL_IN) tools/optc-config.cmake.in > "$(DEST)/lib/cmake/optc/optc-config.cmake"
	$(FILL_IN) tools/optc-config-version.cmake.in > "$(DEST)/lib/cmake/optc/optc-config-version.cmake"

# What `make install` with the same PREFIX and DESTDIR has written. Folders of others stay.
.PHONY: uninstall
uninstall:
	rm -f "$(DEST)/bin/optc" "$(DEST)/lib/liboptc.a" "$(DEST)/lib/liboptc.so" "$(DEST)/lib/liboptc.so.0" \
	    "$(DEST)/lib/pkgconfig/optc.pc" $(addprefix "$(DEST)"/include/,$(notdir $(wildcard runtime/*.h))) \
	    $(addprefix "$(DEST)"/,$(HELP))
	rm -rf "$(DEST)/lib/cmake/optc" "$(DEST)/share/optc"

clean:
	rm -rf $(BUILD)

# ---- GPU tests: run by hand on a machine with an NVIDIA GPU ----
$(BUILD)/obj/tests/gpu/%.o: ALL_CFLAGS += $(CHECK_CFLAGS)
GPU_HARNESS := $(addprefix $(BUILD)/obj/tests/harness/,assert_points.o reference_product.o basis.o code_blocks.o \
                                                       function_cases.o \
                                                       help.o network.o random_spec.o random_squares.o rank_threads.o \
                                                       shard_rank.o shard_world.o type_grid.o forget_states.o \
                                                       pipeline_world.o)
GPU_TEST_OBJ := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/gpu/*.c)) $(GPU_HARNESS)
$(BUILD)/gpu-test: $(GPU_TEST_OBJ) $(BUILD)/liboptc.a
	$(call say,LINK,$@)$(CC) -o $@ $^ -Wl,--wrap=_mark_point $(CHECK_LIBS) $(LDLIBS)

# The same suite on an emulated GPU (tests/emu). The first prerequisite is the source.
EMU_HEADERS := runtime/library/compile/nvrtc.h runtime/core/cuda/cuda_driver.h tests/emu/emu_fail.h
$(BUILD)/emu/libcuda.so.1: tests/emu/emu_driver.c tests/emu/emu_streams.h tests/emu/emu_log.h \
                           tests/emu/emu_log_kernels.h tests/emu/emu_map.h $(EMU_HEADERS) \
                           gen/abi/kernels.def gen/abi/stage_abi.h
$(BUILD)/emu/libnvrtc.so.13: tests/emu/emu_nvrtc.c $(EMU_HEADERS)
$(BUILD)/emu/libcublas.so.13: tests/emu/emu_cublas.c $(EMU_HEADERS) runtime/core/matrix/cublas.h
$(BUILD)/emu/libcusolver.so.12: tests/emu/emu_cusolver.c $(EMU_HEADERS) runtime/core/matrix/cublas.h \
                                runtime/core/matrix/cusolver.h
$(BUILD)/emu/libnvfatbin.so.13: tests/emu/emu_fatbin.c runtime/library/package/fatbin.h tests/emu/emu_fail.h
$(BUILD)/emu/libnccl.so.2: tests/cuda/fake_nccl.c
# The head of every emulated kernel, with the flags of emu_nvrtc.c. Empty, and ignored, without a
# C++ compiler.
$(BUILD)/emu/emu_threads.h.gch: tests/emu/emu_threads.h tests/emu/emu_nvrtc.c
	@mkdir -p $(@D)
	$(call say,CXX,$<)$${CXX:-g++} -std=c++17 -nostdinc++ -O0 -fPIC -fno-exceptions -ffp-contract=off \
	    -fno-strict-aliasing -U_FORTIFY_SOURCE -w -x c++-header -o $@.new $< 2>/dev/null || : > $@.new
	@mv $@.new $@
$(BUILD)/emu/%:
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) -std=gnu11 $(WARN) -O3 -ffp-contract=off -g -fPIC -shared -I. -Wl,-soname,$(@F) \
	    -o $@ $< -ldl -lm

.PHONY: test-emu fuzz-emu
test-emu: $(BUILD)/gpu-test $(EMULATED)
	@BUILD=$(BUILD) sh tests/parts/emu.sh

fuzz-emu: $(BUILD)/gpu-test $(EMULATED)
	@BUILD=$(BUILD) OPTC_FUZZ_SECONDS=$(SECONDS) OPTC_FUZZ_SEED=$(SEED) sh tests/parts/emu.sh

.PHONY: test-gpu bench-gpu
test-gpu: $(BUILD)/gpu-test
	@mkdir -p $(BUILD)/test-cache && chmod 700 $(BUILD)/test-cache
	OPTC_TEST_CACHE=$(BUILD)/test-cache $(BUILD)/gpu-test

bench-gpu: all $(BUILD)/bench-release
	$(BUILD)/bench-release --device cuda --suite --against torch

-include $(shell find $(BUILD)/obj -name "*.d" 2>/dev/null)
