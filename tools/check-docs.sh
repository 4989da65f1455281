#!/usr/bin/env bash
# Checks what the documentation shows: every ```yaml block with flows in it, in
# README.md and docs/, must be a flows file that schedulerd accepts.
set -euo pipefail
cd "$(dirname "$0")/.."

rm -rf bin/docs-blocks
mkdir -p bin/docs-blocks

# A block becomes a file named after its page and line. Lines above it are left
# blank so that the lines in errors are those of the page.
git ls-files README.md CONTRIBUTING.md 'docs/*.md' 'examples/*.md' | while read -r page; do
	awk -v base="bin/docs-blocks/${page//\//__}" '
		/^ *```yaml *$/ { start = NR; indent = index($0, "`") - 1; block = ""; inside = 1; next }
		inside && /^ *``` *$/ {
			inside = 0
			if (block ~ /(^|\n)flows:/) {
				file = base "-" start ".yaml"
				for (i = 1; i <= start; i++) print "" >file
				printf "%s", block >file
				close(file)
			}
			next
		}
		inside { block = block substr($0, indent + 1) "\n" }
	' "$page"
done

blocks=(bin/docs-blocks/*.yaml)
[ -e "${blocks[0]}" ] || { echo "no flows in the documentation: was the README's example lost?" >&2; exit 1; }
failed=0
for block in "${blocks[@]}"; do
	bin/schedulerd --check --flows "$block" || { echo "refused: $block" >&2; failed=1; }
done
echo "${#blocks[@]} blocks checked"
exit "$failed"
