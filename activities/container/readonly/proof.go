package readonly

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// Prover proves of commands whose text changes nothing that they do not in a container either: the
// programs that they would run there have to be those of the container's image. An earlier step, or
// anybody else, may have put others in their place, or a library below them. What cannot be seen is
// not proven.
type Prover struct {
	engine engine.Client
	images images
}

// NewProver makes a prover for containers of an engine. It remembers what it has seen in images.
func NewProver(e engine.Client) *Prover { return &Prover{engine: e} }

// Provable says whether anything can be proven in a container with these settings.
func Provable(in container.InspectResponse) bool {
	_, ok := searchPath(in.Config.Env)
	return ok && !engine.MayMount(in)
}

// Proves says that programs are those of the image that a provable container was made from.
func (p *Prover) Proves(ctx context.Context, programs []string, in container.InspectResponse, image string) (bool,
	error) {
	search, _ := searchPath(in.Config.Env)
	proof := &proof{
		now: liveTree(p.engine, in.ID), then: p.images.tree(p.engine, image), hides: hidden(in), path: search,
		same:  map[string]*file{},
		loads: map[string]bool{},
	}
	ok, err := proof.proveAll(ctx, programs)
	return ok && err == nil, errors.Join(err, proof.then.close(ctx))
}

// hidden are the folders whose content an engine does not show.
func hidden(c container.InspectResponse) []string {
	at := []string{"/dev", "/proc", "/sys"}
	for dir := range c.HostConfig.Tmpfs {
		at = append(at, path.Clean(dir))
	}
	for _, m := range c.HostConfig.Mounts {
		if m.Type == mount.TypeTmpfs {
			at = append(at, path.Clean(m.Target))
		}
	}
	return at
}

// defaultPath is where an engine looks for programs if nothing else is said.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// idle are variables that neither a shell nor a loader nor a harmless program takes for more than a
// text: those that every container has, and what images note about their making. All others are
// left to a checkpoint: a shell may run what a variable says, or take code from where it points,
// and no list of those is complete.
var idle = regexp.MustCompile(`^(HOME|HOSTNAME|TERM|USER|GPG_KEY|[A-Z][A-Z0-9_]*_(VERSION|RELEASE|SHA256))$`)

// searchPath is the PATH of what is run in a container; not ok where its environment may make a
// harmless program load or run something else. A locale does: for any but C, the C library reads
// which code converts its characters.
func searchPath(env []string) (search []string, ok bool) {
	all := defaultPath
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		switch {
		case name == "PATH":
			all = value
		case name == "LANG" || strings.HasPrefix(name, "LC_"):
			if value != "" && value != "C" && value != "POSIX" {
				return nil, false
			}
		case !idle.MatchString(name):
			return nil, false
		}
	}
	search = strings.Split(all, ":")
	return search, !slices.ContainsFunc(search, func(dir string) bool { return !path.IsAbs(dir) })
}

// proof compares what a container would run with what its image holds.
type proof struct {
	now, then *tree
	// hides are the folders in which now does not show what is there.
	hides []string
	path  []string
	// same are the files that were found to be the image's; nil: this one is not.
	same map[string]*file
	// loads are the programs and libraries that have been looked at with all that they load; loaders
	// also by their names.
	loads map[string]bool
	// cached are the places of libraries that the loader's cache names.
	cached map[string][]string
}

func (p *proof) proveAll(ctx context.Context, programs []string) (bool, error) {
	ok, err := p.loader(ctx)
	for _, name := range programs {
		if !ok || err != nil {
			break
		}
		ok, err = p.program(ctx, name)
	}
	return ok, err
}

// loader proves that what decides which libraries are loaded is the image's.
func (p *proof) loader(ctx context.Context) (bool, error) {
	for _, at := range []string{"/etc/ld.so.preload", "/etc/ld.so.cache", "/etc/nsswitch.conf",
		"/etc/ld-musl-" + triplet() + ".path"} {
		f, err := p.file(ctx, at)
		switch {
		case err != nil || f == nil:
			return false, err
		case !f.there():
		case strings.HasSuffix(at, "/ld.so.cache"):
			p.cached = placesIn(f.content)
		case strings.HasSuffix(at, "/nsswitch.conf"):
			if ok, err := p.services(ctx, f.content); !ok || err != nil {
				return false, err
			}
		case len(bytes.TrimSpace(f.content)) > 0:
			return false, nil
		}
	}
	return p.services(ctx, []byte("passwd: files dns compat nis"))
}

// services proves the modules with which users and hosts are looked up, where they are: some are
// built into the library.
func (p *proof) services(ctx context.Context, conf []byte) (bool, error) {
	for line := range strings.Lines(string(conf)) {
		line, _, _ = strings.Cut(line, "#")
		_, names, _ := strings.Cut(line, ":")
		for name := range strings.FieldsSeq(names) {
			if ok, err := p.library(ctx, "libnss_"+name+".so.2", false); !ok || err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// program proves the program that a name stands for, wherever it is found first. What is not found
// does not run.
func (p *proof) program(ctx context.Context, name string) (bool, error) {
	if path.IsAbs(name) {
		f, err := p.file(ctx, name)
		if err != nil || f == nil {
			return false, err
		}
		return p.binary(ctx, f)
	}
	for _, dir := range p.path {
		f, err := p.file(ctx, path.Join(dir, name))
		if err != nil || f == nil {
			return false, err
		}
		if f.there() {
			return p.binary(ctx, f)
		}
	}
	return true, nil
}

// binary proves what a program is loaded with. A script is not proven: it runs others.
func (p *proof) binary(ctx context.Context, f *file) (bool, error) {
	if !f.there() || p.loads[f.name] {
		return true, nil
	}
	p.loads[f.name] = true
	b, err := elf.NewFile(bytes.NewReader(f.content))
	if err != nil {
		return false, nil // whatever it is, it proves nothing
	}
	defer b.Close()
	dynamic := false
	for _, s := range b.Progs {
		dynamic = dynamic || s.Type == elf.PT_DYNAMIC
		if s.Type != elf.PT_INTERP {
			continue
		}
		raw := make([]byte, min(s.Filesz, 4096))
		if _, err := s.ReadAt(raw, 0); err != nil {
			return false, nil
		}
		loader := string(bytes.TrimRight(raw, "\x00"))
		if ok, err := p.program(ctx, loader); !ok || err != nil {
			return false, err
		}
		p.loads[path.Base(loader)] = true // it is there before any library is looked for
	}
	if dynamic && b.SectionByType(elf.SHT_DYNAMIC) == nil {
		return false, nil
	}
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH, elf.DT_AUDIT, elf.DT_DEPAUDIT, elf.DT_AUXILIARY,
		elf.DT_FILTER} {
		if said, err := b.DynValue(tag); err != nil || len(said) > 0 {
			return false, nil
		}
	}
	needs, err := b.ImportedLibraries()
	if err != nil {
		return false, nil
	}
	for _, name := range needs {
		if ok, err := p.library(ctx, name, true); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// library proves a library in each place that a loader may find it in.
func (p *proof) library(ctx context.Context, name string, needed bool) (bool, error) {
	if strings.Contains(name, "/") || p.loads[name] {
		return p.loads[name], nil
	}
	places := p.cached[name]
	if len(places) == 0 {
		for _, dir := range libraryFolders {
			places = append(places, path.Join(dir, name))
			if f, err := p.file(ctx, path.Join(dir, "glibc-hwcaps")); err != nil || f == nil {
				return false, err
			}
		}
	}
	found := false
	for _, at := range places {
		f, err := p.file(ctx, at)
		if err != nil || f == nil {
			return false, err
		}
		if !f.there() {
			continue
		}
		found = true
		if ok, err := p.binary(ctx, f); !ok || err != nil {
			return false, err
		}
	}
	return found || !needed, nil
}

// libraryFolders are where loaders look for what no cache names, in no order.
var libraryFolders = []string{
	"/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib", "/lib/" + triplet() + "-linux-gnu",
	"/usr/lib/" + triplet() + "-linux-gnu",
}

// triplet is what the engine's machine is called in names of folders: it is this one.
func triplet() string {
	switch runtime.GOARCH {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	}
	return runtime.GOARCH
}

// placesIn reads the paths in the cache of the C library's loader: every text in it that is an
// absolute path.
func placesIn(cache []byte) map[string][]string {
	places := map[string][]string{}
	for text := range bytes.SplitSeq(cache, []byte{0}) {
		if at := string(text); path.IsAbs(at) {
			places[path.Base(at)] = append(places[path.Base(at)], at)
		}
	}
	return places
}

// file is the file at a path in the container, with symbolic links followed; nil where it is not
// the image's. What is in neither is the same in both.
func (p *proof) file(ctx context.Context, at string) (*file, error) {
	if f, seen := p.same[at]; seen {
		return f, nil
	}
	p.same[at] = nil
	if below(path.Clean(at), p.hides) {
		return nil, nil //nolint:nilnil // it cannot be seen
	}
	is, err := p.now.findFile(ctx, at)
	if err != nil || is.odd || is.there() && below(is.name, p.hides) {
		return nil, err
	}
	was, err := p.then.findFile(ctx, at)
	if err != nil || is.digest != was.digest {
		return nil, err
	}
	p.same[at] = is
	return is, nil
}

// below says that a path is one of folders, or in one of them.
func below(at string, folders []string) bool {
	return slices.ContainsFunc(folders,
		func(folder string) bool { return at == folder || strings.HasPrefix(at, folder+"/") })
}
