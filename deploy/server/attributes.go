package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.temporal.io/api/enums/v1"
)

// attributeFlag collects --search-attribute Name=Type.
type attributeFlag map[string]enums.IndexedValueType

func (a *attributeFlag) String() string {
	names := slices.Sorted(maps.Keys(*a))
	for i, name := range names {
		names[i] = name + "=" + (*a)[name].String()
	}
	return strings.Join(names, ",")
}

func (a *attributeFlag) Set(s string) error {
	name, kind, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return fmt.Errorf("%q is not Name=Type", s)
	}
	t, err := enums.IndexedValueTypeFromString(kind)
	if err != nil || t == enums.INDEXED_VALUE_TYPE_UNSPECIFIED {
		return fmt.Errorf(
			"%q is no type of a search attribute; known are Text, Keyword, Int, Double, Bool, Datetime, KeywordList", kind)
	}
	if *a == nil {
		*a = attributeFlag{}
	}
	(*a)[name] = t
	return nil
}
