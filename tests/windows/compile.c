/* compile.exe fxc|dxc FOLDER FIRST STEP: has a compiler of Microsoft's compile the HLSL that FOLDER\list.tsv names, every
 * STEP-th line from FIRST on, as wgpu has it compiled. Prints a line for each: ok or refused, milliseconds, the file, the
 * kernel, and the compiler's first message.
 * Built by .ci/windows with MinGW; d3dcompiler_47.dll, or dxcompiler.dll and dxil.dll, must lie beside it. */
#define COBJMACROS
#include <d3dcompiler.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

struct outcome {
    int compiled;
    char message[400];
};

/* An error as it is; of warnings the first that is not of those that say nothing about us. */
static void keep_message(struct outcome *outcome, const char *text, size_t bytes) {
    static const char *usual[] = {
        "X3556", /* integer divisions are slow */
        NULL,
    };
    for (const char *end = text + bytes, *line = text, *next; line < end && *line; line = next) {
        size_t length = 0;
        while (line + length < end && line[length] && line[length] != '\n') length++;
        next = line + length + 1;
        char one[sizeof outcome->message];
        snprintf(one, sizeof one, "%.*s", (int)length, line);
        one[strcspn(one, "\r")] = 0;
        int is_usual = 0;
        for (const char **code = usual; *code; code++) is_usual |= strstr(one, *code) != NULL;
        if (!is_usual && (strstr(one, "error") || (!*outcome->message && strstr(one, "warning"))))
            strcpy(outcome->message, one);
        if (strstr(one, "error")) return;
    }
}

static pD3DCompile fxc;

static struct outcome compile_by_fxc(const char *text, size_t bytes) {
    struct outcome outcome = {0};
    ID3DBlob *code = NULL, *said = NULL;
    HRESULT result = fxc(text, bytes, "kernel", NULL, NULL, "main", "cs_5_1", D3DCOMPILE_ENABLE_STRICTNESS, 0, &code, &said);
    outcome.compiled = SUCCEEDED(result) && code;
    if (said) {
        keep_message(&outcome, ID3D10Blob_GetBufferPointer(said), ID3D10Blob_GetBufferSize(said));
        ID3D10Blob_Release(said);
    }
    if (code) ID3D10Blob_Release(code);
    return outcome;
}

/* What is used of dxcapi.h, which MinGW does not have: methods by their place in the tables. */
typedef struct { const void *text; size_t bytes; UINT encoding; } DxcText;
typedef struct { void **methods; } Object;
typedef HRESULT(WINAPI *DxcCreate)(const GUID *, const GUID *, Object **);
typedef HRESULT(WINAPI *Compile)(Object *, const DxcText *, const WCHAR **, UINT, Object *, const GUID *, Object **);
typedef HRESULT(WINAPI *GetStatus)(Object *, HRESULT *);
typedef HRESULT(WINAPI *GetErrors)(Object *, Object **);
typedef void *(WINAPI *GetPointer)(Object *);
typedef size_t(WINAPI *GetSize)(Object *);
typedef ULONG(WINAPI *Release)(Object *);
enum { RELEASE = 2, COMPILE = 3, GET_STATUS = 3, GET_ERRORS = 5, GET_POINTER = 3, GET_SIZE = 4 };
static const GUID COMPILER = {0x73e22d93, 0xe6ce, 0x47f3, {0xb5, 0xbf, 0xf0, 0x66, 0x4f, 0x39, 0xc1, 0xb0}};
static const GUID COMPILER_3 = {0x228b4687, 0x5a6a, 0x4730, {0x90, 0x0c, 0x97, 0x02, 0xb2, 0x20, 0x3f, 0x54}};
static const GUID RESULT = {0x58346cda, 0xdde7, 0x4497, {0x94, 0x61, 0x6f, 0x87, 0xaf, 0x5e, 0x06, 0x59}};
#define UTF8 65001

static Object *dxc;

static void release(Object *object) {
    if (object) ((Release)object->methods[RELEASE])(object);
}

static struct outcome compile_by_dxc(const char *text, size_t bytes) {
    const WCHAR *arguments[] = {L"-E", L"main", L"-T", L"cs_6_6", L"-HV", L"2018", L"-Ges", L"-enable-16bit-types", L"-Wno-parentheses-equality"};
    struct outcome outcome = {0};
    DxcText source = {text, bytes, UTF8};
    Object *result = NULL, *said = NULL;
    HRESULT status = ((Compile)dxc->methods[COMPILE])(dxc, &source, arguments, sizeof arguments / sizeof *arguments, NULL, &RESULT, &result);
    if (SUCCEEDED(status) && result) {
        ((GetStatus)result->methods[GET_STATUS])(result, &status);
        outcome.compiled = SUCCEEDED(status);
        ((GetErrors)result->methods[GET_ERRORS])(result, &said);
        if (said)
            keep_message(&outcome, ((GetPointer)said->methods[GET_POINTER])(said), ((GetSize)said->methods[GET_SIZE])(said));
    }
    release(said);
    release(result);
    return outcome;
}

static int load(const char *name) {
    if (!strcmp(name, "fxc")) {
        HMODULE library = LoadLibraryA("d3dcompiler_47.dll");
        fxc = library ? (pD3DCompile)(void *)GetProcAddress(library, "D3DCompile") : NULL;
        return fxc != NULL;
    }
    HMODULE library = LoadLibraryA("dxcompiler.dll");
    DxcCreate create = library ? (DxcCreate)(void *)GetProcAddress(library, "DxcCreateInstance") : NULL;
    return create && SUCCEEDED(create(&COMPILER, &COMPILER_3, &dxc));
}

static char *read_whole(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    *bytes = ftell(file);
    rewind(file);
    char *text = malloc(*bytes + 1);
    *bytes = fread(text, 1, *bytes, file);
    fclose(file);
    return text;
}

int main(int count, char **arguments) {
    if (count < 5) return fprintf(stderr, "usage: compile.exe fxc|dxc FOLDER FIRST STEP\n"), 2;
    if (!load(arguments[1])) return fprintf(stderr, "%s cannot be loaded\n", arguments[1]), 1;
    int by_fxc = !strcmp(arguments[1], "fxc"), first = atoi(arguments[3]), step = atoi(arguments[4]);
    char line[1000], path[1000];
    snprintf(path, sizeof path, "%s\\list.tsv", arguments[2]);
    FILE *list = fopen(path, "r");
    if (!list) return fprintf(stderr, "%s cannot be read\n", path), 1;
    for (int at = 0; fgets(line, sizeof line, list); at++) {
        if (at % step != first) continue;
        line[strcspn(line, "\r\n")] = 0;
        char *kernel = strchr(line, '\t');
        *kernel++ = 0;
        size_t bytes;
        snprintf(path, sizeof path, "%s\\%s", arguments[2], line);
        char *text = read_whole(path, &bytes);
        if (!text) return fprintf(stderr, "%s cannot be read\n", path), 1;
        DWORD begun = GetTickCount();
        struct outcome outcome = by_fxc ? compile_by_fxc(text, bytes) : compile_by_dxc(text, bytes);
        printf("%s\t%lu\t%s\t%s\t%s\n", outcome.compiled ? "ok" : "refused", GetTickCount() - begun, line, kernel, outcome.message);
        fflush(stdout);
        free(text);
    }
    return 0;
}
