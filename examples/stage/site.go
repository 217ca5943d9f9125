package stage

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// journals are the folders that the file world keeps beside what it changes: they are not part of
// the site.
var journals = []string{".unwind"}

// setSite makes a realistic site: unusual modes, old times with odd nanoseconds, a link,
// attributes.
func (s *Stage) setSite() error {
	site := s.path(siteFolder)
	for _, folder := range []string{"assets", "releases", "releases/1.4.2"} {
		if err := os.Mkdir(filepath.Join(site, folder), 0o750); err != nil {
			return err
		}
	}
	old := time.Date(2024, 3, 1, 8, 30, 0, 123_456_789, time.UTC)
	for _, f := range []struct {
		name, content string
		mode          os.FileMode
	}{
		{"app.yml", "release: 1.4.2\nworkers: 4\n", 0o604},
		{"routes.json", `{"/": "app"}` + "\n", 0o464},
		{"status.json", `{"release": "1.4.2", "healthy": true}` + "\n", 0o600},
		{"maintenance.html", "<h1>Back soon</h1>\n", 0o640},
		{"assets/logo.svg", `<svg xmlns="http://www.w3.org/2000/svg"/>` + "\n", 0o755},
		{"releases/1.4.2/notes.txt", "Nothing new.\n", 0o444},
	} {
		path := filepath.Join(site, f.name)
		if err := os.WriteFile(path, []byte(f.content), 0o600); err != nil {
			return err
		}
		if err := os.Chmod(path, f.mode|0o200); err != nil { // attributes can only be set on writable files
			return err
		}
		if err := unix.Setxattr(path, "user.origin", []byte("deployed by hand"), 0); err != nil &&
			!errors.Is(err, unix.ENOTSUP) {
			return err
		}
		if err := os.Chmod(path, f.mode); err != nil {
			return err
		}
		if err := os.Chtimes(path, old, old); err != nil {
			return err
		}
		old = old.Add(77*time.Hour + 1_000_003*time.Nanosecond)
	}
	return os.Symlink("releases/1.4.2", filepath.Join(site, "release"))
}
