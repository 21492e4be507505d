package schema

// Type is a field's type, as Kong's metaschema calls it.
type Type string

// The types that the plugin uses. Kong knows more.
const (
	String  Type = "string"
	Integer Type = "integer"
	Number  Type = "number"
	Boolean Type = "boolean"
	Array   Type = "array"
	Record  Type = "record"
)

// Field describes one setting. Kong enforces it when a config is written; Normalize enforces it again when one arrives.
type Field struct {
	Name string
	Type Type
	// Doc is shown by Kong Manager and by GET /schemas/plugins. Kong stops at a description outside 10 to 500 characters.
	Doc string
	// Default is what an absent setting means; nil: nothing. A bool, string, int or float64, by the Type.
	Default any
	// Required is for records, whose fields' defaults Kong fills in only then, and for fields of array elements.
	Required bool
	// OneOf lists the allowed strings.
	OneOf []string
	// Min and Max bound a number, inclusive; both 0: it is not bounded.
	Min, Max float64
	// LenMin is the least number of elements of an array, LenMax the most; 0: not bounded. Strings have at least one character.
	LenMin, LenMax int
	// Secret lets the setting be a reference to a vault, and keeps it out of Kong's database in clear.
	Secret bool
	// Elements describes an array's elements, Fields a record's fields.
	Elements *Field
	Fields   []Field
}

// bounded reports whether the field is a number with a range.
func (f *Field) bounded() bool { return f.Min != 0 || f.Max != 0 }
