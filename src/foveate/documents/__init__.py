"""Texts as people have them: protected spans, markup and white space kept, sentences for a model.

Lives here: cutting a text or a document into sentences and joining the answers again. Pure: no
model inside; who calls translates the sentences and links their words.
"""
