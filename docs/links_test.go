package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	links    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headings = regexp.MustCompile(`(?m)^#+ (.*)$`)
	unlinked = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// pagesToRead are README.md, those beside it, and all below docs.
func pagesToRead(t *testing.T) (pages []string) {
	t.Helper()
	for _, pattern := range []string{"../*.md", "*.md", "*/*.md"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		pages = append(pages, found...)
	}
	require.Greater(t, len(pages), 20)
	return pages
}

// TestLinksLeadSomewhere looks up the file and the heading of every link from one page to another.
func TestLinksLeadSomewhere(t *testing.T) {
	found := 0
	for _, page := range pagesToRead(t) {
		for _, link := range links.FindAllStringSubmatch(read(t, page), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			found++
			file, anchor, _ := strings.Cut(link[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			_, err := os.Stat(target)
			require.NoError(t, err, "%s: %s", page, link[1])
			if anchor != "" {
				require.Contains(t, anchors(read(t, target)), anchor, "%s: %s", page, link[1])
			}
		}
	}
	require.Greater(t, found, 80)
}

// anchors are the names that headings of a page have in links.
func anchors(page string) (all []string) {
	for _, heading := range headings.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		name := unlinked.ReplaceAllString(strings.ToLower(heading[1]), "")
		all = append(all, strings.ReplaceAll(name, " ", "-"))
	}
	return all
}

// TestPagesStayShort keeps what everybody reads as long as everybody reads it.
func TestPagesStayShort(t *testing.T) {
	for pattern, limit := range map[string]int{"../README.md": 900, "../ARCHITECTURE.md": 1500, "decisions/*.md": 2500} {
		pages, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, pages, pattern)
		words := 0
		for _, page := range pages {
			words += len(strings.Fields(read(t, page)))
		}
		require.LessOrEqual(t, words, limit, "words of %s", pattern)
	}
}

func read(t *testing.T, page string) string {
	t.Helper()
	content, err := os.ReadFile(page)
	require.NoError(t, err)
	return string(content)
}
