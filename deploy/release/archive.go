package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"slices"
	"strings"
	"time"
)

// file is a file in an archive.
type file struct {
	name    string
	mode    int64
	content []byte
}

// released is the time of all files: that of the build would make each archive another one.
var released = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// archive packs files, sorted by name, into a folder of a compressed tar file.
func archive(folder string, files []file) ([]byte, error) {
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	var b bytes.Buffer
	compressed := gzip.NewWriter(&b)
	w := tar.NewWriter(compressed)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: folder + "/" + f.name, Mode: f.mode, Size: int64(len(f.content)),
			ModTime: released}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
