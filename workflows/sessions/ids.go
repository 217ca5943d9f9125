package sessions

import (
	"cmp"
	"crypto/sha256"
	"maps"
	"slices"
)

// idSet is a set of ids that keeps 8 bytes of each: an id that is mistaken for another is refused,
// which is harmless.
type idSet map[[8]byte]bool

func hashID(kind, id string) [8]byte {
	sum := sha256.Sum256([]byte(kind + "\x00" + id))
	return [8]byte(sum[:8])
}

func (s idSet) add(kind, id string) { s[hashID(kind, id)] = true }

func (s idSet) has(kind, id string) bool { return s[hashID(kind, id)] }

// bytes are the ids in a fixed order.
func (s idSet) bytes() []byte {
	ids := slices.Collect(maps.Keys(s))
	slices.SortFunc(ids, func(a, b [8]byte) int { return cmp.Compare(string(a[:]), string(b[:])) })
	return slices.Concat(sliceAll(ids)...)
}

// maxRequestIDs is how many requests a session knows again. Nobody repeats one after so many
// others.
const maxRequestIDs = 10_000

// requestIDs are the ids of the last requests, 8 bytes of each, the oldest first.
type requestIDs struct {
	known idSet
	order [][8]byte
}

func (r *requestIDs) has(id string) bool { return r.known.has("request", id) }

func (r *requestIDs) add(id string) {
	if r.known == nil {
		r.known = idSet{}
	}
	r.known.add("request", id)
	r.order = append(r.order, hashID("request", id))
	if len(r.order) > maxRequestIDs {
		delete(r.known, r.order[0])
		r.order = r.order[1:]
	}
}

// drop forgets the id of a request that was refused.
func (r *requestIDs) drop(id string) {
	hash := hashID("request", id)
	delete(r.known, hash)
	r.order = slices.DeleteFunc(r.order, func(o [8]byte) bool { return o == hash })
}

func (r *requestIDs) bytes() []byte { return slices.Concat(sliceAll(r.order)...) }

func requestIDsOf(raw []byte) requestIDs {
	r := requestIDs{known: idSetOf(raw)}
	for id := range slices.Chunk(raw, 8) {
		r.order = append(r.order, [8]byte(id))
	}
	return r
}

func sliceAll(ids [][8]byte) [][]byte {
	all := make([][]byte, len(ids))
	for i := range ids {
		all[i] = ids[i][:]
	}
	return all
}

func idSetOf(raw []byte) idSet {
	s := idSet{}
	for id := range slices.Chunk(raw, 8) {
		s[[8]byte(id)] = true
	}
	return s
}
