/* bcryptprimitives.dll for a Wine that has none: random bytes, by the call that Windows had before. */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T count) {
    for (SIZE_T done = 0; done < count;) {
        ULONG some = count - done > 1u << 30 ? 1u << 30 : (ULONG)(count - done);
        if (!SystemFunction036(bytes + done, some)) return FALSE;
        done += some;
    }
    return TRUE;
}
