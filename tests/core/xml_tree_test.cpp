#include "levin/core/files/xml_tree.h"

#include <gtest/gtest.h>

#include "levin/core/options/error.h"
#include "support/error_text.h"

namespace levin::xml_tree_test {
namespace {

std::string problem_of(const std::string& document) {
  return test::error_of<Error>([&] { (void)read_xml(document); });
}

TEST(XmlTree, ReadsElementsTextAndEntities) {
  const XmlElement root = read_xml(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- a list --><s3:List "
      "xmlns='http://s3.amazonaws.com/doc/2006-03-01/' "
      "a = \"x > y\">\n<Key>a&amp;b&lt;&gt;&quot;&apos;&#233;&#x1F600;</Key><Empty/><Key>2<![CDATA[<&>]]></Key >"
      "<!-- <Key> --></s3:List>\n");
  EXPECT_EQ(root.name, "List");
  ASSERT_EQ(root.elements.size(), 3U);
  EXPECT_EQ(root.text_of("Key"), "a&b<>\"'\xC3\xA9\xF0\x9F\x98\x80");
  EXPECT_EQ(root.elements[2].text, "2<&>");
  ASSERT_NE(root.find("Empty"), nullptr);
  EXPECT_EQ(root.find("Nothing"), nullptr);
  EXPECT_EQ(root.text_of("Nothing"), "");
}

TEST(XmlTree, NamesTheOffsetOfAMistake) {
  EXPECT_EQ(problem_of(""), "XML, offset 0: expected an element.");
  EXPECT_EQ(problem_of("text"), "XML, offset 0: expected an element.");
  EXPECT_EQ(problem_of("<a>"), "XML, offset 3: expected \"</a>\".");
  EXPECT_EQ(problem_of("<a></b>"), "XML, offset 6: expected \"</a>\".");
  EXPECT_EQ(problem_of("<a/>x"), "XML, offset 4: expected the end of the document.");
  EXPECT_EQ(problem_of("<:/>"), "XML, offset 2: expected a name.");
  EXPECT_EQ(problem_of("<a b>"), "XML, offset 4: expected \"=\" after an attribute.");
  EXPECT_EQ(problem_of("<a b=1>"), "XML, offset 5: expected a quoted value.");
  EXPECT_EQ(problem_of("<a b='1>"), "XML, offset 6: expected \"'\".");
  EXPECT_EQ(problem_of("<a>&nbsp;</a>"), "XML, offset 4: unknown entity \"nbsp\".");
  EXPECT_EQ(problem_of("<a>&#xD800;</a>"), "XML, offset 4: unknown entity \"#xD800\".");
  EXPECT_EQ(problem_of("<a>&amp</a>"), "XML, offset 4: expected \";\" after an entity.");
  EXPECT_EQ(problem_of("<a><!-- "), "XML, offset 7: expected \"-->\".");
  EXPECT_EQ(problem_of("<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"), "XML, offset 0: a document type is not accepted.");
}

TEST(XmlTree, RefusesDeepNesting) {
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "<a>";
  EXPECT_EQ(problem_of(deep), "XML, offset 96: elements are nested more than 32 deep.");
}

TEST(XmlTree, WritesTextThatReadsBack) {
  const std::string text = "\"5f\" <a> & 'b'";
  EXPECT_EQ(read_xml("<a>" + xml_text(text) + "</a>").text, text);
}

}  // namespace
}  // namespace levin::xml_tree_test
