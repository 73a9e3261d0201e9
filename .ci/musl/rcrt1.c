/* The start of a static position-independent file: adds the address where it is loaded to each pointer in it, then calls the C
   library. musl 1.2.3, which Debian 12 has, reads these places from DT_RELA only, 24 bytes for each. This also reads DT_RELR,
   which has a bit for most of them and saves podprobe 400 KB; musl itself does since 1.2.4. */
#include <elf.h>
#include <stddef.h>

#ifndef DT_RELR
#define DT_RELRSZ 35
#define DT_RELR 36
#endif

__asm__(".text\n"
        ".global _start\n"
        ".type _start,%function\n"
        "_start:\n"
        "	xor %rbp,%rbp\n"
        "	mov %rsp,%rdi\n"
        ".weak _DYNAMIC\n"
        ".hidden _DYNAMIC\n"
        "	lea _DYNAMIC(%rip),%rsi\n"
        "	andq $-16,%rsp\n"
        "	call podprobe_start\n");

int main(int, char **, char **);
__attribute__((visibility("hidden"))) void _init(void);
__attribute__((visibility("hidden"))) void _fini(void);
_Noreturn int __libc_start_main(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void));

/* Nothing that has to be relocated itself may be used before the end of the loops. */
__attribute__((visibility("hidden"), used)) _Noreturn void podprobe_start(size_t *stack, Elf64_Dyn *dynamic) {
  size_t *end = stack + 1 + stack[0] + 1;
  while (*end++) {
  }
  const Elf64_auxv_t *auxiliary = (const void *)end;
  const Elf64_Phdr *header = 0;
  size_t headers = 0, base = 0;
  for (; auxiliary->a_type != AT_NULL; auxiliary++) {
    if (auxiliary->a_type == AT_PHDR) header = (const void *)auxiliary->a_un.a_val;
    if (auxiliary->a_type == AT_PHNUM) headers = auxiliary->a_un.a_val;
  }
  for (; headers; headers--, header++)
    if (header->p_type == PT_DYNAMIC) base = (size_t)dynamic - header->p_vaddr;

  size_t rela = 0, rela_size = 0, relr = 0, relr_size = 0;
  for (const Elf64_Dyn *entry = dynamic; entry->d_tag != DT_NULL; entry++) {
    if (entry->d_tag == DT_RELA) rela = base + entry->d_un.d_val;
    if (entry->d_tag == DT_RELASZ) rela_size = entry->d_un.d_val;
    if (entry->d_tag == DT_RELR) relr = base + entry->d_un.d_val;
    if (entry->d_tag == DT_RELRSZ) relr_size = entry->d_un.d_val;
  }
  for (const Elf64_Rela *r = (const void *)rela; rela_size; r++, rela_size -= sizeof *r)
    if (ELF64_R_TYPE(r->r_info) == R_X86_64_RELATIVE) *(size_t *)(base + r->r_offset) = base + r->r_addend;
  /* An even word is the address of a pointer. Each bit of an odd one, the lowest excepted, is one of the 63 words that follow. */
  size_t *place = 0;
  for (const size_t *r = (const void *)relr; relr_size; r++, relr_size -= sizeof *r) {
    if (!(*r & 1)) {
      place = (size_t *)(base + *r);
      *place++ += base;
      continue;
    }
    size_t *next = place;
    for (size_t bits = *r >> 1; bits; bits >>= 1, next++)
      if (bits & 1) *next += base;
    place += 63;
  }
  __libc_start_main(main, stack[0], (char **)(stack + 1), _init, _fini, 0);
}
